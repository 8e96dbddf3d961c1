// Reads JSON files, with errors that name the file and the key.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "base/error.h"

namespace encore::json {

using boost::json::array;
using boost::json::object;
using boost::json::value;

// Parses JSON text of at most 64 levels of nesting. `where` names the source in messages. Errors:
// kModel when the text is not one JSON value, or a key occurs twice in one object.
value parse(std::string_view text, std::string_view where);

// Reads a whole file. Errors: kModel, naming the path, when it cannot be read.
std::string read_file(const std::filesystem::path& path);

// Returns parse(read_file(path), path).
value parse_file(const std::filesystem::path& path);

// Returns a value as one line for people. Fractions have six digits; a number that is not finite
// becomes null.
std::string to_text(const value& value);
// Returns a value as one line that parses to the same value again.
std::string exact_text(const value& value);
// Returns the number as JSON, or null where there is none.
value optional_number(const std::optional<double>& number);
// Returns whether two values are equal. 1 equals 1.0, and the order of an object's keys does not
// matter.
bool is_same(const value& a, const value& b);

// An object whose accessors throw kModel with "<where>: key 'x' ..." on a missing key or wrong
// type.
class Object {
 public:
  // Makes a view of `value`, which messages call `where`. Errors: kModel when `value` is not an
  // object. Lifetime: refers to `value`.
  Object(const value& value, std::string where);

  [[nodiscard]] bool has(std::string_view key) const;  // whether the key is present and not null
  [[nodiscard]] const value& at(std::string_view key) const;
  [[nodiscard]] Object object_at(std::string_view key) const;
  [[nodiscard]] const array& array_at(std::string_view key) const;
  [[nodiscard]] std::string string_at(std::string_view key) const;
  [[nodiscard]] int64_t int_at(std::string_view key) const;
  [[nodiscard]] double double_at(std::string_view key) const;  // an integer becomes a double
  [[nodiscard]] bool bool_at(std::string_view key) const;
  // The accessors NAME_or() return the value of a key, or `fallback` when the key is absent or
  // null.
  [[nodiscard]] std::string string_or(std::string_view key, std::string fallback) const;
  [[nodiscard]] int64_t int_or(std::string_view key, int64_t fallback) const;
  [[nodiscard]] double double_or(std::string_view key, double fallback) const;
  [[nodiscard]] bool bool_or(std::string_view key, bool fallback) const;
  [[nodiscard]] const object& raw() const { return *object_; }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  const object* object_;
  std::string where_;
};

}  // namespace encore::json
