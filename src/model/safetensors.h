// One safetensors file: a JSON header of names, dtypes, shapes and offsets, then the tensors'
// bytes.
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

// A tensor's bytes as a checkpoint holds them: dense, row-major, little-endian.
// Lifetime: as long as the file it came from. `data` may be unaligned for `dtype`: copy, never
// cast.
struct StoredTensor {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;
  // Elements lie in blocks of this format, and stand for numbers of `dtype`; null: they lie one behind the other.
  const gguf::BlockFormat* blocks = nullptr;
  // Rows are those of so many heads, and in each a row of its first half is followed by the one of its second, as GGUF
  // keeps what is rotated by neighbours; 0: they are in order.
  int64_t interleaved_heads = 0;

  // Does the order of its bytes say which elements they are?
  [[nodiscard]] bool is_plain() const { return blocks == nullptr && interleaved_heads == 0; }
  [[nodiscard]] int64_t num_bytes() const {
    if (blocks != nullptr) return shape.num_elements() / blocks->num_elements * blocks->num_bytes;
    return shape.num_elements() * size_of(dtype);
  }
};

// How the bytes of a file come to memory.
enum class FileAccess : uint8_t {
  kMapped,  // as they are read; a file that others truncate meanwhile is a fault (SIGBUS)
  kCopied,  // all of them at once, so whatever happens to the file later changes nothing
};

// A file's bytes, read-only, for one pass from front to back. Threads: reads from any thread.
class MappedFile {
 public:
  // Errors: kModel, naming the path, when it is not a regular file that can be read.
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

// The tensors of one file, all of the format's rules checked when it is opened.
// Threads: const, so from any thread. Lifetime: views die with it; moving it keeps them valid.
class SafetensorsFile {
 public:
  // Errors: kModel, one line with the file, the tensor and what is wrong.
  explicit SafetensorsFile(const std::filesystem::path& path,
                           FileAccess access = FileAccess::kMapped);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // All of the file, its header included.
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {file_.data(), static_cast<size_t>(file_.size())};
  }
  // Tensor names in the order of their bytes: the order to read them in. Then further names of the
  // same tensors.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] bool contains(std::string_view tensor_name) const;
  // Errors: kModel when there is no such tensor; kUnsupported, naming the tensor and its dtype,
  // when Encore has no such dtype. Such tensors are harmless until they are asked for.
  [[nodiscard]] StoredTensor tensor(std::string_view tensor_name) const;
  // The free-form strings of the header's "__metadata__".
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Entry {
    std::string stored_dtype;    // as the file spells it: "BF16", "F8_E4M3"
    std::optional<DType> dtype;  // none when Encore has no such dtype
    Shape shape;
    int64_t begin = 0;  // Units: bytes from the start of the buffer.
    int64_t end = 0;
  };

  void read_header();
  void add_metadata(const json::Object& strings);
  void add_tensor(const std::string& tensor_name, const json::Object& info);
  // Tensors fill the buffer: in the order of their offsets, no hole, no overlap, nothing after
  // them.
  void check_layout(int64_t buffer_bytes);
  // Gives tensors the names under which safetensors.save_model has left them out, as their bytes are
  // stored under another: the metadata has the one by the other.
  void add_aliases();

  std::filesystem::path path_;
  MappedFile file_;
  const std::byte* buffer_ = nullptr;
  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace encore::model
