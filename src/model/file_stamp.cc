#include "model/file_stamp.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "model/safetensors.h"

namespace encore::model {
namespace {

// The largest number of bytes of a header that are hashed. A GGUF file is hashed up to this length,
// because its metadata does not tell how long it is.
constexpr uint64_t kMostHashed = 16 << 20;

}  // namespace

FileStamp stamp(const std::filesystem::path& path) {
  const MappedFile file(path);
  std::error_code failed;
  FileStamp stamp{path, file.size(), std::filesystem::last_write_time(path, failed)};
  if (failed) fail(ErrorKind::kModel, "{}: cannot be read: {}", path.string(), failed.message());
  // A file starts with the length of its header; see safetensors.h.
  uint64_t header_bytes = 0;
  const auto size = static_cast<uint64_t>(file.size());
  if (size < sizeof(header_bytes)) return stamp;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const auto hashed =
      std::min({header_bytes, size - sizeof(header_bytes), kMostHashed}) + sizeof(header_bytes);
  stamp.header_hash = std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(hashed)});
  return stamp;
}

}  // namespace encore::model
