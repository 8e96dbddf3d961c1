// Reads a GGUF file, or the files that one was split into. It has typed metadata, then tensors,
// many of them in blocks of few bits.
//
//   4 bytes "GGUF", u32 version, u64 tensors, u64 keys
//   keys      string name, u32 type, value
//   tensors   string name, u32 dims, u64 dims[] (the fastest first), u32 type, u64 offset
//   data      aligned, where the offsets count from
//
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/tensor.h"
#include "model/gguf/block.h"
#include "model/safetensors.h"

namespace encore::model::gguf {

// Refers to an array of the metadata: its elements as they lie in the file or, for strings, the
// place of each.
struct Array {
  uint32_t type = 0;
  int64_t count = 0;
  const std::byte* data = nullptr;
  std::vector<std::string_view> strings;
};
using Value = std::variant<bool, int64_t, double, std::string_view, Array>;

struct Tensor {
  const BlockFormat* format = nullptr;
  Shape shape;  // the slowest dim first, as everywhere else in Encore
  const std::byte* data = nullptr;

  [[nodiscard]] int64_t num_bytes() const {
    return shape.num_elements() / format->num_elements * format->num_bytes;
  }
};

// Gives access to the metadata and tensors of a GGUF file. Threads: const, so any thread. Lifetime:
// views that it returns die with it.
class File {
 public:
  // Opens a file. For a split file, `path` is the first part, and the other parts are found beside
  // it. Errors: kModel, one line with the file and the key or tensor, for a file that is truncated,
  // inconsistent, or not a GGUF of version 2 or 3.
  explicit File(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return paths_.front(); }
  [[nodiscard]] const std::vector<std::filesystem::path>& paths() const { return paths_; }

  [[nodiscard]] bool has(std::string_view key) const { return values_.contains(key); }
  // These functions return the value of a key. Errors: kModel, naming the key, where it is absent
  // or of another type.
  [[nodiscard]] std::string_view text(std::string_view key) const;
  [[nodiscard]] int64_t integer(std::string_view key) const;
  [[nodiscard]] double number(std::string_view key) const;
  [[nodiscard]] bool boolean(std::string_view key) const;
  [[nodiscard]] const std::vector<std::string_view>& texts(std::string_view key) const;
  [[nodiscard]] std::vector<int64_t> integers(std::string_view key) const;
  [[nodiscard]] std::vector<float> numbers(std::string_view key) const;

  [[nodiscard]] bool has_tensor(std::string_view name) const { return tensors_.contains(name); }
  [[nodiscard]] const std::map<std::string, Tensor, std::less<>>& tensors() const {
    return tensors_;
  }

 private:
  class Reader;

  void open(const std::filesystem::path& path);
  void read_values(Reader& reader, int64_t count, bool is_first);
  void read_tensors(Reader& reader, int64_t count);
  [[nodiscard]] const Value& value(std::string_view key) const;
  template <typename T>
  [[nodiscard]] const T& get(std::string_view key, std::string_view wanted) const;

  std::vector<std::filesystem::path> paths_;
  std::vector<MappedFile> files_;
  std::map<std::string, Value, std::less<>> values_;  // metadata of the first file
  std::map<std::string, Tensor, std::less<>> tensors_;
};

// Returns whether the path ends as paths of GGUF files do.
bool is_gguf(const std::filesystem::path& path);

}  // namespace encore::model::gguf
