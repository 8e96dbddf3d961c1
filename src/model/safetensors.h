// Reads a safetensors file. It has a JSON header of names, dtypes, shapes and offsets, followed by
// the tensors' bytes.
//
//   8 bytes          length of the header, little-endian
//   header           {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
//   buffer           the bytes that the offsets count from
//
// Source: https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/tensor.h"
#include "model/gguf/block.h"

namespace encore::json {
class Object;
}

namespace encore::model {

// Refers to a tensor's bytes as a checkpoint holds them: dense, row-major, little-endian.
// Lifetime: valid as long as the file that it came from. `data` may be unaligned for `dtype`, so
// copy elements and never cast the pointer.
struct StoredTensor {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;
  // `blocks` is the format of the blocks that hold the elements, which stand for numbers of
  // `dtype`. Null: the elements lie one behind the other.
  const gguf::BlockFormat* blocks = nullptr;
  // If above 0, the rows belong to this number of heads, and within a head the rows of its two
  // halves alternate, as GGUF keeps rows that are rotated as neighbours. 0: the rows are in order.
  int64_t interleaved_heads = 0;

  // Returns whether the elements lie in the usual order, without blocks and without interleaved
  // heads.
  [[nodiscard]] bool is_plain() const { return blocks == nullptr && interleaved_heads == 0; }
  [[nodiscard]] int64_t num_bytes() const {
    if (blocks != nullptr) return shape.num_elements() / blocks->num_elements * blocks->num_bytes;
    return shape.num_elements() * size_of(dtype);
  }
};

// Says how the bytes of a file get into memory.
enum class FileAccess : uint8_t {
  kMapped,  // when they are read; if others truncate the file, that faults (SIGBUS)
  kCopied,  // all at once, so later changes to the file have no effect
};

// Holds a file's bytes, read-only, for one pass from front to back. Threads: any thread may read.
class MappedFile {
 public:
  // Maps or copies the file. Errors: kModel, naming the path, when it is not a regular file that
  // can be read.
  explicit MappedFile(const std::filesystem::path& path, FileAccess access = FileAccess::kMapped);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] int64_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;  // null when the file is empty
  int64_t size_ = 0;
};

// Gives access to the tensors of one file. Opening it checks all rules of the format.
// Threads: const, so any thread. Lifetime: views die with the object; moving it keeps them valid.
class SafetensorsFile {
 public:
  // Opens a file. Errors: kModel, one line with the file, the tensor and what is wrong.
  explicit SafetensorsFile(const std::filesystem::path& path,
                           FileAccess access = FileAccess::kMapped);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // Returns all bytes of the file, its header included.
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {file_.data(), static_cast<size_t>(file_.size())};
  }
  // Returns the tensors' names in the order of their bytes, which is the best order to read them
  // in. Further names of the same tensors follow.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] bool contains(std::string_view tensor_name) const;
  // Returns a tensor. Errors: kModel when there is no such tensor; kUnsupported, naming the tensor
  // and its dtype, when Encore lacks the dtype. A tensor of such a dtype does no harm until it is
  // asked for.
  [[nodiscard]] StoredTensor tensor(std::string_view tensor_name) const;
  // Returns the free-form strings of the header's "__metadata__".
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Entry {
    std::string stored_dtype;    // as the file spells it: "BF16", "F8_E4M3"
    std::optional<DType> dtype;  // absent when Encore has no such dtype
    Shape shape;
    int64_t begin = 0;  // Units: bytes from the start of the buffer.
    int64_t end = 0;
  };

  void read_header();
  void add_metadata(const json::Object& strings);
  void add_tensor(const std::string& tensor_name, const json::Object& info);
  // Checks that the tensors fill the buffer: in the order of their offsets there is no hole and no
  // overlap, and nothing follows the last tensor.
  void check_layout(int64_t buffer_bytes);
  // Adds further names of tensors. safetensors.save_model stores tensors with equal bytes once, and
  // the metadata maps each name that it left out to the stored name.
  void add_aliases();

  std::filesystem::path path_;
  MappedFile file_;
  const std::byte* buffer_ = nullptr;
  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace encore::model
