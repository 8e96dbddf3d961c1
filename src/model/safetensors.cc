#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/json.h"

namespace encore::model {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";

// Describes a dtype of the format. Its size is in bits, because some dtypes are smaller than a
// byte.
struct StoredDType {
  std::string_view name;
  int64_t bits;
  std::optional<DType> dtype;
};
constexpr std::array kStoredDTypes = {
    StoredDType{"BF16", 16, DType::kBF16},       StoredDType{"F16", 16, DType::kF16},
    StoredDType{"F32", 32, DType::kF32},         StoredDType{"I32", 32, DType::kI32},
    StoredDType{"I64", 64, DType::kI64},         StoredDType{"BOOL", 8, std::nullopt},
    StoredDType{"U8", 8, std::nullopt},          StoredDType{"I8", 8, std::nullopt},
    StoredDType{"F8_E5M2", 8, std::nullopt},     StoredDType{"F8_E4M3", 8, DType::kFP8},
    StoredDType{"F8_E5M2FNUZ", 8, std::nullopt}, StoredDType{"F8_E4M3FNUZ", 8, std::nullopt},
    StoredDType{"F8_E8M0", 8, std::nullopt},     StoredDType{"F4", 4, std::nullopt},
    StoredDType{"F6_E2M3", 6, std::nullopt},     StoredDType{"F6_E3M2", 6, std::nullopt},
    StoredDType{"I16", 16, std::nullopt},        StoredDType{"U16", 16, std::nullopt},
    StoredDType{"U32", 32, std::nullopt},        StoredDType{"U64", 64, std::nullopt},
    StoredDType{"F64", 64, std::nullopt},        StoredDType{"C64", 64, std::nullopt},
};

// Shortens a name from a file, so that a message of one line can show it.
std::string_view clip(std::string_view name) {
  return name.substr(0, 200);
}

const StoredDType& stored_dtype(const json::Object& info) {
  const std::string text = info.string_at("dtype");
  for (const StoredDType& row : kStoredDTypes) {
    if (row.name == text) return row;
  }
  fail(ErrorKind::kModel, "{}: unknown dtype {:?}", info.where(), text.substr(0, 40));
}

// Returns an element of "shape" or "data_offsets". Errors: kModel unless it is an integer in [0,
// 2^63).
int64_t non_negative(const json::value& number, const json::Object& info, std::string_view key) {
  if (!number.is_int64() || number.get_int64() < 0) {
    fail(ErrorKind::kModel, "{}: '{}' must hold non-negative integers", info.where(), key);
  }
  return number.get_int64();
}

Shape read_shape(const json::Object& info) {
  const json::array& dims = info.array_at("shape");
  if (dims.size() > Shape::kMaxRank) {
    fail(ErrorKind::kModel, "{}: rank {} is above {}", info.where(), dims.size(), Shape::kMaxRank);
  }
  Shape shape;
  for (const json::value& dim : dims)
    shape.push_back(non_negative(dim, info, "shape"));
  return shape;
}

// Returns the bytes of a tensor. Errors: kModel when their number does not fit in 63 bits, or when
// the elements do not fill whole bytes.
int64_t bytes_of(const Shape& shape, const StoredDType& dtype, const std::string& where) {
  int64_t bits = dtype.bits;
  // A dim of zero makes the product zero, but only if no partial product overflows before it.
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(bits, dim, &bits)) {
      fail(ErrorKind::kModel, "{}: the shape's size overflows", where);
    }
  }
  if (bits % 8 != 0) fail(ErrorKind::kModel, "{}: the size is not whole bytes", where);
  return bits / 8;
}

std::string_view header_text(const MappedFile& file, const std::string& where) {
  if (file.size() < kLengthBytes) {
    fail(ErrorKind::kModel, "{}: {} bytes are too few for a safetensors file", where, file.size());
  }
  if (std::memcmp(file.data(), "version ", kLengthBytes) == 0) {
    fail(ErrorKind::kModel, "{}: a git-lfs pointer, not the weights: run 'git lfs pull'", where);
  }
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<uint64_t>(file.data()[i]) << static_cast<unsigned>(8 * i);
  }
  if (header_bytes > kMaxHeaderBytes) {
    fail(ErrorKind::kModel, "{}: a header of {} bytes is above the format's limit of {}", where,
         header_bytes, kMaxHeaderBytes);
  }
  if (static_cast<int64_t>(header_bytes) > file.size() - kLengthBytes) {
    fail(ErrorKind::kModel, "{}: the header ends at byte {}, but the file has {}: truncated?",
         where, kLengthBytes + static_cast<int64_t>(header_bytes), file.size());
  }
  const char* begin = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  if (header_bytes == 0 || *begin != '{') {
    fail(ErrorKind::kModel, "{}: the header must begin with '{{'", where);
  }
  return {begin, static_cast<size_t>(header_bytes)};
}

bool read_whole(int fd, char* to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = ::pread(fd, to + done, bytes - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, FileAccess access) {
  const auto cannot = [&](std::string_view why) {
    fail(ErrorKind::kModel, "{}: cannot be read: {}", path.string(), why);
  };
  // O_NONBLOCK keeps the opening of a pipe from waiting for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) cannot(std::strerror(errno));
  struct stat info {};
  const bool is_file = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const auto bytes = static_cast<size_t>(is_file ? info.st_size : 0);
  const bool is_copied = access == FileAccess::kCopied;
  void* mapping = nullptr;
  if (bytes > 0) {
    mapping = is_copied ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                        : ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int map_errno = errno;
  const bool is_whole =
      !is_copied || mapping == MAP_FAILED || read_whole(fd, static_cast<char*>(mapping), bytes);
  ::close(fd);
  if (!is_file) cannot("not a regular file");
  if (mapping == MAP_FAILED) cannot(std::strerror(map_errno));
  if (!is_whole) {
    ::munmap(mapping, bytes);
    cannot("it became shorter while it was read, or reading failed");
  }
  data_ = static_cast<const std::byte*>(mapping);
  size_ = info.st_size;
  if (is_copied) return;
  // madvise() only gives advice: if the kernel declines it, nothing changes.
  if (mapping != nullptr) (void)::madvise(mapping, static_cast<size_t>(size_), MADV_SEQUENTIAL);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, FileAccess access)
    : path_(path), file_(path, access) {
  read_header();
}

void SafetensorsFile::read_header() {
  const std::string where = path_.string();
  const std::string_view text = header_text(file_, where);
  buffer_ = file_.data() + kLengthBytes + text.size();
  const json::value header = json::parse(text, where + ": header");
  const json::Object root(header, where + ": header");
  for (const auto& [key, value] : root.raw()) {
    const std::string tensor_name(key.data(), key.size());
    if (tensor_name == kMetadataKey) {
      if (!value.is_null()) add_metadata(root.object_at(kMetadataKey));
    } else {
      add_tensor(tensor_name,
                 json::Object(value, fmt::format("{}: tensor {:?}", where, clip(tensor_name))));
    }
  }
  check_layout(file_.size() - kLengthBytes - static_cast<int64_t>(text.size()));
  add_aliases();
}

void SafetensorsFile::add_aliases() {
  for (const auto& [name, stored] : metadata_) {
    const auto found = entries_.find(stored);
    if (found == entries_.end() || !entries_.try_emplace(name, found->second).second) continue;
    names_.push_back(name);
  }
}

void SafetensorsFile::add_metadata(const json::Object& strings) {
  for (const auto& [key, value] : strings.raw()) {
    const std::string name(key.data(), key.size());
    if (!value.is_string()) {
      fail(ErrorKind::kModel, "{}: key {:?} must be a string", strings.where(), clip(name));
    }
    metadata_[name] = std::string(value.get_string().data(), value.get_string().size());
  }
}

void SafetensorsFile::add_tensor(const std::string& tensor_name, const json::Object& info) {
  const StoredDType& dtype = stored_dtype(info);
  const Shape shape = read_shape(info);
  const json::array& offsets = info.array_at("data_offsets");
  if (offsets.size() != 2) {
    fail(ErrorKind::kModel, "{}: 'data_offsets' must hold two integers", info.where());
  }
  const int64_t begin = non_negative(offsets[0], info, "data_offsets");
  const int64_t end = non_negative(offsets[1], info, "data_offsets");
  if (begin > end) {
    fail(ErrorKind::kModel, "{}: begins at byte {}, after its end at {}", info.where(), begin, end);
  }
  const int64_t needed_bytes = bytes_of(shape, dtype, info.where());
  if (end - begin != needed_bytes) {
    fail(ErrorKind::kModel, "{}: has {} bytes, but its shape of {} needs {}", info.where(),
         end - begin, dtype.name, needed_bytes);
  }
  entries_.emplace(tensor_name, Entry{std::string(dtype.name), dtype.dtype, shape, begin, end});
}

void SafetensorsFile::check_layout(int64_t buffer_bytes) {
  std::vector<const std::pair<const std::string, Entry>*> order;
  order.reserve(entries_.size());
  for (const auto& item : entries_)
    order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t position = 0;
  for (const auto* item : order) {
    const auto& [tensor_name, entry] = *item;
    if (entry.begin != position) {
      fail(ErrorKind::kModel,
           "{}: tensor {:?} begins at byte {}, but the tensors before it end at {}{}",
           path_.string(), clip(tensor_name), entry.begin, position,
           entry.begin < position ? ": they overlap" : ": a hole");
    }
    if (entry.end > buffer_bytes) {
      fail(ErrorKind::kModel, "{}: tensor {:?} ends at byte {}, but the file holds {}: truncated?",
           path_.string(), clip(tensor_name), entry.end, buffer_bytes);
    }
    position = entry.end;
    names_.push_back(tensor_name);
  }
  if (position != buffer_bytes) {
    fail(ErrorKind::kModel, "{}: {} bytes after the last tensor belong to none", path_.string(),
         buffer_bytes - position);
  }
}

bool SafetensorsFile::contains(std::string_view tensor_name) const {
  return entries_.find(tensor_name) != entries_.end();
}

StoredTensor SafetensorsFile::tensor(std::string_view tensor_name) const {
  const auto found = entries_.find(tensor_name);
  if (found == entries_.end()) {
    fail(ErrorKind::kModel, "{}: tensor {:?} is missing", path_.string(), clip(tensor_name));
  }
  const Entry& entry = found->second;
  if (!entry.dtype) {
    fail(ErrorKind::kUnsupported,
         "{}: tensor {:?} has dtype {}; supported: BF16, F16, F32, F8_E4M3, I32, I64",
         path_.string(), clip(tensor_name), entry.stored_dtype);
  }
  return {*entry.dtype, entry.shape, buffer_ + entry.begin};
}

}  // namespace encore::model
