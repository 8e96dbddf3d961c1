#include "model/gguf/file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace encore::model::gguf {
namespace {

namespace fs = std::filesystem;

enum Type : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

constexpr int64_t kMaxTensors = 1 << 20;
constexpr int64_t kMaxKeys = 1 << 20;
constexpr int64_t kMaxSplits = 1 << 16;
constexpr int64_t kMaxElements = int64_t{1} << 46;
constexpr uint32_t kMaxDims = 4;
constexpr int64_t kDefaultAlignment = 32;
constexpr size_t kShownName = 100;

std::string shown(std::string_view name) {
  return fmt::format("{:?}", name.substr(0, kShownName));
}

// Returns the size of an element of a type, or 0 if its size varies or there is no such type.
int64_t size_of_type(uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kF32:
      return 4;
    case kU64:
    case kI64:
    case kF64:
      return 8;
    default:
      return 0;
  }
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Returns an element of a type that size_of_type() knows. A u64 that i64 cannot hold becomes the
// largest i64.
std::variant<bool, int64_t, double> load_scalar(uint32_t type, const std::byte* at) {
  switch (type) {
    case kU8:
      return int64_t{load<uint8_t>(at)};
    case kI8:
      return int64_t{load<int8_t>(at)};
    case kU16:
      return int64_t{load<uint16_t>(at)};
    case kI16:
      return int64_t{load<int16_t>(at)};
    case kU32:
      return int64_t{load<uint32_t>(at)};
    case kI32:
      return int64_t{load<int32_t>(at)};
    case kI64:
      return load<int64_t>(at);
    case kU64:
      return static_cast<int64_t>(
          std::min<uint64_t>(load<uint64_t>(at), std::numeric_limits<int64_t>::max()));
    case kBool:
      return load<uint8_t>(at) != 0;
    case kF32:
      return static_cast<double>(load<float>(at));
    default:
      return load<double>(at);
  }
}

// Returns the path of file `number` of a split file: PREFIX-00001-of-00003.gguf.
fs::path split_path(const fs::path& first, int64_t number, int64_t count) {
  const std::string own = fmt::format("-{:05}-of-{:05}.gguf", 1, count);
  const std::string name = first.filename().string();
  if (!name.ends_with(own)) {
    fail(ErrorKind::kModel,
         "{}: a file of {} that a model was split into; give the first, which is named ...{}",
         first.string(), count, own);
  }
  return first.parent_path() / (name.substr(0, name.size() - own.size()) +
                                fmt::format("-{:05}-of-{:05}.gguf", number, count));
}

}  // namespace

// Reads one file from front to back.
class File::Reader {
 public:
  Reader(const fs::path& path, const MappedFile& file) : path_(path), file_(file) {}

  [[nodiscard]] int64_t position() const { return position_; }
  [[nodiscard]] int64_t left() const { return file_.size() - position_; }
  [[nodiscard]] std::string where() const { return path_.string(); }

  // Takes `bytes` bytes. `what` names the part that is being read, for the message if the file ends
  // first.
  const std::byte* take(int64_t bytes, std::string_view what) {
    if (bytes < 0 || bytes > left())
      fail(ErrorKind::kModel, "{}: the file ends within {}: is the download complete?", where(),
           what);
    const std::byte* const at = file_.data() + position_;
    position_ += bytes;
    return at;
  }
  template <typename T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what));
  }
  std::string_view text(std::string_view what) {
    const auto length = number<uint64_t>(what);
    if (length > static_cast<uint64_t>(left()))
      fail(ErrorKind::kModel, "{}: {} is longer than the file: is the download complete?", where(),
           what);
    return {reinterpret_cast<const char*>(take(static_cast<int64_t>(length), what)), length};
  }
  // Reads a count of things that take at least `least` bytes each, so that the file must be long
  // enough for them.
  int64_t count(std::string_view what, int64_t most, int64_t least) {
    const auto count = number<uint64_t>(what);
    if (count > static_cast<uint64_t>(most) || static_cast<int64_t>(count) > left() / least)
      fail(ErrorKind::kModel, "{}: {} {} cannot be in a file of {} bytes", where(), count, what,
           file_.size());
    return static_cast<int64_t>(count);
  }

 private:
  const fs::path& path_;
  const MappedFile& file_;
  int64_t position_ = 0;
};

File::File(const fs::path& path) {
  open(path);
  const int64_t count = has("split.count") ? integer("split.count") : 1;
  if (count < 0 || count > kMaxSplits)
    fail(ErrorKind::kModel, "{}: key 'split.count' is {}", path.string(), count);
  if (has("split.no") && integer("split.no") != 0) (void)split_path(path, 1, count);
  for (int64_t number = 2; number <= count; ++number) {
    const fs::path next = split_path(path, number, count);
    std::error_code ignored;
    if (!fs::exists(next, ignored)) {
      fail(ErrorKind::kModel, "{}: {} is missing beside it, {} of {} that the model was split into",
           path.string(), next.filename().string(), number, count);
    }
    open(next);
  }
}

void File::open(const fs::path& path) {
  paths_.push_back(path);
  files_.emplace_back(path);
  Reader reader(paths_.back(), files_.back());
  const auto* magic = reader.take(4, "its first bytes");
  if (std::memcmp(magic, "GGUF", 4) != 0)
    fail(ErrorKind::kModel, "{}: not a GGUF file", path.string());
  const auto version = reader.number<uint32_t>("its version");
  if (version != 2 && version != 3) {
    const bool is_swapped = version != 0 && (version & 0xffff) == 0;
    fail(ErrorKind::kModel, "{}: GGUF version {} is not read: take one of version 2 or 3{}",
         path.string(), version, is_swapped ? ", in little-endian" : "");
  }
  const int64_t num_tensors = reader.count("tensors", kMaxTensors, 8 + 4 + 8 + 4 + 8);
  const int64_t num_keys = reader.count("keys", kMaxKeys, 8 + 4 + 1);
  read_values(reader, num_keys, paths_.size() == 1);
  read_tensors(reader, num_tensors);
}

void File::read_values(Reader& reader, int64_t count, bool is_first) {
  for (int64_t i = 0; i < count; ++i) {
    const std::string key(reader.text("a key's name"));
    const std::string what = fmt::format("key {}", shown(key));
    const auto type = reader.number<uint32_t>(what);
    Value value;
    if (type == kString) {
      value = reader.text(what);
    } else if (type == kArray) {
      Array array;
      array.type = reader.number<uint32_t>(what);
      const int64_t size = array.type == kString ? 8 : size_of_type(array.type);
      if (size == 0)
        fail(ErrorKind::kModel, "{}: {}: an array of type {} is not read", reader.where(), what,
             array.type);
      array.count = reader.count("elements of " + what, std::numeric_limits<int64_t>::max(), size);
      if (array.type == kString) {
        array.strings.reserve(static_cast<size_t>(array.count));
        for (int64_t j = 0; j < array.count; ++j)
          array.strings.push_back(reader.text(what));
      } else {
        array.data = reader.take(array.count * size, what);
      }
      value = std::move(array);
    } else {
      const int64_t size = size_of_type(type);
      if (size == 0)
        fail(ErrorKind::kModel, "{}: {}: there is no type {}", reader.where(), what, type);
      std::visit([&](auto scalar) { value = scalar; }, load_scalar(type, reader.take(size, what)));
    }
    if (!is_first) continue;
    if (!values_.emplace(key, std::move(value)).second)
      fail(ErrorKind::kModel, "{}: {} is there twice", reader.where(), what);
  }
}

void File::read_tensors(Reader& reader, int64_t count) {
  std::vector<std::pair<Tensor*, int64_t>> offsets;
  for (int64_t i = 0; i < count; ++i) {
    const std::string name(reader.text("a tensor's name"));
    const std::string what = fmt::format("tensor {}", shown(name));
    const auto refuse = [&](const std::string& why) {
      fail(ErrorKind::kModel, "{}: {} {}", reader.where(), what, why);
    };
    const auto rank = reader.number<uint32_t>(what);
    if (rank < 1 || rank > kMaxDims) refuse(fmt::format("has {} dimensions", rank));
    std::vector<int64_t> dims;
    int64_t elements = 1;
    for (uint32_t j = 0; j < rank; ++j) {
      const auto dim = reader.number<uint64_t>(what);
      if (dim == 0 || dim > static_cast<uint64_t>(kMaxElements / elements))
        refuse(fmt::format("has a dimension of {}", dim));
      elements *= static_cast<int64_t>(dim);
      dims.push_back(static_cast<int64_t>(dim));
    }
    Tensor tensor;
    const auto type = reader.number<uint32_t>(what);
    tensor.format = find_format(type);
    if (tensor.format == nullptr) refuse(fmt::format("is in format {}, which nobody knows", type));
    if (dims[0] % tensor.format->num_elements != 0) {
      refuse(fmt::format("has rows of {} elements, no multiple of the {} in a block of {}", dims[0],
                         tensor.format->num_elements, tensor.format->name));
    }
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim)
      tensor.shape.push_back(*dim);
    const auto offset = reader.number<uint64_t>(what);
    if (offset > static_cast<uint64_t>(reader.left()))
      refuse("lies behind the end of the file: is the download complete?");
    const auto [place, is_new] = tensors_.emplace(name, tensor);
    if (!is_new) refuse("is there twice");
    offsets.emplace_back(&place->second, static_cast<int64_t>(offset));
  }
  int64_t alignment = kDefaultAlignment;
  if (has("general.alignment")) alignment = integer("general.alignment");
  if (alignment < 1 || alignment > (1 << 20) ||
      !std::has_single_bit(static_cast<uint64_t>(alignment)))
    fail(ErrorKind::kModel, "{}: key 'general.alignment' is {}", reader.where(), alignment);
  if (const int64_t rest = reader.position() % alignment; rest > 0 && count > 0)
    (void)reader.take(alignment - rest, "the space in front of its tensors");
  for (const auto& [tensor, offset] : offsets) {
    const int64_t bytes = tensor->num_bytes();
    if (offset > reader.left() || bytes > reader.left() - offset) {
      const auto found =
          std::ranges::find_if(tensors_, [&](const auto& row) { return &row.second == tensor; });
      fail(ErrorKind::kModel, "{}: the file ends within tensor {}: is the download complete?",
           reader.where(), shown(found->first));
    }
    tensor->data = files_.back().data() + reader.position() + offset;
  }
}

const Value& File::value(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end())
    fail(ErrorKind::kModel, "{}: key '{}' is missing", path().string(), key);
  return found->second;
}

template <typename T>
const T& File::get(std::string_view key, std::string_view wanted) const {
  const T* found = std::get_if<T>(&value(key));
  if (found == nullptr)
    fail(ErrorKind::kModel, "{}: key '{}' is not {}", path().string(), key, wanted);
  return *found;
}

std::string_view File::text(std::string_view key) const {
  return get<std::string_view>(key, "a string");
}

int64_t File::integer(std::string_view key) const {
  return get<int64_t>(key, "an integer");
}

double File::number(std::string_view key) const {
  if (const auto* integer = std::get_if<int64_t>(&value(key))) return static_cast<double>(*integer);
  return get<double>(key, "a number");
}

bool File::boolean(std::string_view key) const {
  return get<bool>(key, "a boolean");
}

const std::vector<std::string_view>& File::texts(std::string_view key) const {
  const auto& array = get<Array>(key, "a list of strings");
  if (array.type != kString)
    fail(ErrorKind::kModel, "{}: key '{}' is not a list of strings", path().string(), key);
  return array.strings;
}

std::vector<int64_t> File::integers(std::string_view key) const {
  const auto& array = get<Array>(key, "a list of integers");
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < array.count; ++i) {
    const auto scalar = array.type == kString
                            ? std::variant<bool, int64_t, double>(0.0)
                            : load_scalar(array.type, array.data + i * size_of_type(array.type));
    if (!std::holds_alternative<int64_t>(scalar))
      fail(ErrorKind::kModel, "{}: key '{}' is not a list of integers", path().string(), key);
    numbers.push_back(std::get<int64_t>(scalar));
  }
  return numbers;
}

std::vector<float> File::numbers(std::string_view key) const {
  const auto& array = get<Array>(key, "a list of numbers");
  if (array.type != kF32)
    fail(ErrorKind::kModel, "{}: key '{}' is not a list of f32", path().string(), key);
  std::vector<float> numbers(static_cast<size_t>(array.count));
  if (array.count > 0) std::memcpy(numbers.data(), array.data, numbers.size() * sizeof(float));
  return numbers;
}

bool is_gguf(const fs::path& path) {
  return path.extension() == ".gguf";
}

}  // namespace encore::model::gguf
