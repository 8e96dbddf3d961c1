#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <vector>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_stack.hpp>

#include "base/file.h"

namespace encore::json {
namespace {

namespace bj = boost::json;

constexpr size_t kMaxDepth = 64;

// Builds a value from the parser's events. Boost's own handler keeps the last of two equal keys,
// and rounds some decimals to a neighbouring double. This builder refuses equal keys and rounds
// correctly.
class Builder {
 public:
  // NOLINTBEGIN(readability-identifier-naming): what the parser asks for
  static constexpr size_t max_object_size = object::max_size();
  static constexpr size_t max_array_size = array::max_size();
  static constexpr size_t max_key_size = bj::string::max_size();
  static constexpr size_t max_string_size = bj::string::max_size();
  // NOLINTEND(readability-identifier-naming)

  Builder() { stack_.reset(); }

  value release() { return stack_.release(); }
  // Returns why this builder stopped the parser; empty text when the parser stopped by itself.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool on_document_begin(bj::error_code& /*ec*/) { return true; }
  bool on_document_end(bj::error_code& /*ec*/) { return true; }
  bool on_object_begin(bj::error_code& /*ec*/) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(size_t n, bj::error_code& /*ec*/) {
    keys_.pop_back();
    stack_.push_object(n);
    return true;
  }
  bool on_array_begin(bj::error_code& /*ec*/) { return true; }
  bool on_array_end(size_t n, bj::error_code& /*ec*/) {
    stack_.push_array(n);
    return true;
  }
  bool on_key_part(bj::string_view part, size_t /*n*/, bj::error_code& /*ec*/) {
    key_.append(part.data(), part.size());
    stack_.push_chars(part);
    return true;
  }
  bool on_key(bj::string_view part, size_t /*n*/, bj::error_code& ec) {
    key_.append(part.data(), part.size());
    if (!keys_.back().insert(key_).second) {
      return stop(ec, fmt::format("key {:?} occurs twice in one object", key_.substr(0, 80)));
    }
    key_.clear();
    stack_.push_key(part);
    return true;
  }
  bool on_string_part(bj::string_view part, size_t /*n*/, bj::error_code& /*ec*/) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(bj::string_view part, size_t /*n*/, bj::error_code& /*ec*/) {
    stack_.push_string(part);
    return true;
  }
  bool on_number_part(bj::string_view part, bj::error_code& /*ec*/) {
    number_.append(part.data(), part.size());
    return true;
  }
  bool on_int64(int64_t number, bj::string_view /*part*/, bj::error_code& /*ec*/) {
    number_.clear();
    stack_.push_int64(number);
    return true;
  }
  bool on_uint64(uint64_t number, bj::string_view /*part*/, bj::error_code& /*ec*/) {
    number_.clear();
    stack_.push_uint64(number);
    return true;
  }
  bool on_double(double number, bj::string_view part, bj::error_code& ec) {
    number_.append(part.data(), part.size());
    const auto [end, status] =
        std::from_chars(number_.data(), number_.data() + number_.size(), number);
    // from_chars reports result_out_of_range for numbers that are too large or too small for a
    // double, and leaves the result of Boost's parser in `number`. Only infinity, for a number too
    // large, is an error.
    if (status == std::errc::result_out_of_range && std::isinf(number)) {
      return stop(ec, fmt::format("number {} is too large", number_));
    }
    number_.clear();
    stack_.push_double(number);
    return true;
  }
  bool on_bool(bool flag, bj::error_code& /*ec*/) {
    stack_.push_bool(flag);
    return true;
  }
  bool on_null(bj::error_code& /*ec*/) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(bj::string_view /*part*/, bj::error_code& /*ec*/) { return true; }
  bool on_comment(bj::string_view /*part*/, bj::error_code& /*ec*/) { return true; }

 private:
  bool stop(bj::error_code& ec, std::string problem) {
    problem_ = std::move(problem);
    ec = bj::error::exception;
    return false;
  }

  bj::value_stack stack_;
  std::vector<std::unordered_set<std::string>> keys_;  // the keys of each object that is open
  std::string key_;
  std::string number_;
  std::string problem_;
};

std::string_view kind_name(const value& v) {
  switch (v.kind()) {
    case bj::kind::null:
      return "null";
    case bj::kind::bool_:
      return "a boolean";
    case bj::kind::int64:
    case bj::kind::uint64:
      return "an integer";
    case bj::kind::double_:
      return "a number";
    case bj::kind::string:
      return "a string";
    case bj::kind::array:
      return "an array";
    case bj::kind::object:
      return "an object";
  }
  return "unknown";
}

[[noreturn]] void wrong_type(const Object& object, std::string_view key, std::string_view expected,
                             const value& found) {
  fail(ErrorKind::kModel, "{}: key '{}' must be {}, not {}", object.where(), key, expected,
       kind_name(found));
}

}  // namespace

value parse(std::string_view text, std::string_view where) {
  bj::parse_options options;
  options.max_depth = kMaxDepth;
  bj::basic_parser<Builder> parser(options);
  bj::error_code ec;
  const size_t consumed = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && consumed < text.size()) ec = bj::error::extra_data;
  if (ec) {
    const std::string& problem = parser.handler().problem();
    fail(ErrorKind::kModel, "{}: invalid JSON at byte {}: {}", where, consumed,
         problem.empty() ? ec.message() : problem);
  }
  return parser.handler().release();
}

std::string read_file(const std::filesystem::path& path) {
  return read_text_file(path, ErrorKind::kModel);
}

value parse_file(const std::filesystem::path& path) {
  return parse(read_file(path), path.string());
}

Object::Object(const value& value, std::string where)
    : object_(value.if_object()), where_(std::move(where)) {
  if (object_ == nullptr) {
    fail(ErrorKind::kModel, "{}: must be a JSON object, not {}", where_, kind_name(value));
  }
}

bool Object::has(std::string_view key) const {
  const value* found = object_->if_contains(key);
  return found != nullptr && !found->is_null();
}

const value& Object::at(std::string_view key) const {
  const value* found = object_->if_contains(key);
  if (found == nullptr) fail(ErrorKind::kModel, "{}: key '{}' is missing", where_, key);
  return *found;
}

Object Object::object_at(std::string_view key) const {
  const value& found = at(key);
  if (!found.is_object()) wrong_type(*this, key, "an object", found);
  return {found, fmt::format("{}: '{}'", where_, key)};
}

const array& Object::array_at(std::string_view key) const {
  const value& found = at(key);
  if (!found.is_array()) wrong_type(*this, key, "an array", found);
  return found.get_array();
}

std::string Object::string_at(std::string_view key) const {
  const value& found = at(key);
  if (!found.is_string()) wrong_type(*this, key, "a string", found);
  const bj::string& text = found.get_string();
  return {text.data(), text.size()};
}

int64_t Object::int_at(std::string_view key) const {
  const value& found = at(key);
  if (found.is_uint64()) {
    fail(ErrorKind::kModel, "{}: key '{}' is too large: {}", where_, key, found.get_uint64());
  }
  if (!found.is_int64()) wrong_type(*this, key, "an integer", found);
  return found.get_int64();
}

double Object::double_at(std::string_view key) const {
  const value& found = at(key);
  if (found.is_int64()) return static_cast<double>(found.get_int64());
  if (found.is_uint64()) return static_cast<double>(found.get_uint64());
  if (!found.is_double()) wrong_type(*this, key, "a number", found);
  return found.get_double();
}

bool Object::bool_at(std::string_view key) const {
  const value& found = at(key);
  if (!found.is_bool()) wrong_type(*this, key, "a boolean", found);
  return found.get_bool();
}

std::string Object::string_or(std::string_view key, std::string fallback) const {
  return has(key) ? string_at(key) : std::move(fallback);
}

int64_t Object::int_or(std::string_view key, int64_t fallback) const {
  return has(key) ? int_at(key) : fallback;
}

double Object::double_or(std::string_view key, double fallback) const {
  return has(key) ? double_at(key) : fallback;
}

bool Object::bool_or(std::string_view key, bool fallback) const {
  return has(key) ? bool_at(key) : fallback;
}

namespace {

// Appends a value as JSON text. `number` is the fmt format of its doubles.
void append(std::string& out, const value& value, std::string_view number);

void append(std::string& out, const object& object, std::string_view number) {
  out += '{';
  for (const auto& [key, member] : object) {
    if (out.back() != '{') out += ", ";
    out += boost::json::serialize(boost::json::string_view(key));
    out += ": ";
    append(out, member, number);
  }
  out += '}';
}

void append(std::string& out, const array& array, std::string_view number) {
  out += '[';
  for (size_t i = 0; i < array.size(); ++i) {
    if (i > 0) out += ", ";
    append(out, array[i], number);
  }
  out += ']';
}

void append(std::string& out, const value& value, std::string_view number) {
  if (value.is_object()) {
    append(out, value.get_object(), number);
  } else if (value.is_array()) {
    append(out, value.get_array(), number);
  } else if (value.is_double()) {
    out += std::isfinite(value.get_double()) ? fmt::format(fmt::runtime(number), value.get_double())
                                             : "null";
  } else {
    out += boost::json::serialize(value);
  }
}

}  // namespace

std::string to_text(const value& value) {
  std::string out;
  append(out, value, "{:.6g}");
  return out;
}

std::string exact_text(const value& value) {
  std::string out;
  append(out, value, "{}");
  return out;
}

value optional_number(const std::optional<double>& number) {
  return number ? value(*number) : value(nullptr);
}

bool is_same(const value& a, const value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  if (a.is_array() && b.is_array()) {
    const array& items = a.get_array();
    const array& others = b.get_array();
    return std::equal(items.begin(), items.end(), others.begin(), others.end(), is_same);
  }
  if (a.is_object() && b.is_object()) {
    const object& members = a.get_object();
    const object& others = b.get_object();
    return members.size() == others.size() &&
           std::all_of(members.begin(), members.end(), [&](const auto& member) {
             const value* const other = others.if_contains(member.key());
             return other != nullptr && is_same(member.value(), *other);
           });
  }
  return a == b;
}

}  // namespace encore::json
