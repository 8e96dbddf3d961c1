// The parameters of an API as data: what is read, checked and documented comes from one table.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"

namespace encore::server {

enum class Support : uint8_t {
  kHonoured,
  kNoEffect,  // taken, and changes nothing
  kRefused,   // an error, unless it has the value that changes nothing: the fallback, "" or []
};

enum class ParameterKind : uint8_t {
  kAny,
  kBoolean,
  kInteger,
  kNumber,
  kString,
  kStrings,   // a string, or a list of them
  kIntegers,  // a list
  kArray,
  kObject,
};

struct Parameter {
  std::string_view name;
  Support support = Support::kHonoured;
  ParameterKind kind = ParameterKind::kAny;
  std::string_view fallback;  // as JSON: what holds when it is absent; empty: said in the doc
  std::string_view doc;       // of a refused one: why
  // Limits of a number's value, or of a list's length.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};
using ParameterTable = std::vector<Parameter>;

// Decides what is done about parameters that the table does not have.
enum class UnknownParameters : uint8_t { kRefuse, kWarn };

// The parameters of one request: of a known name, the right kind and in range. null counts as
// absent, whatever the name.
class Parameters {
 public:
  // Reads the JSON object in `body`. Lifetime: refers to the table.
  static std::variant<Parameters, ApiError> parse(std::string_view body,
                                                  const ParameterTable& table,
                                                  UnknownParameters unknown);

  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  // The value, or null when the parameter is absent.
  [[nodiscard]] const json::value* find(std::string_view name) const;
  // The value, or else the table's fallback. REQUIRES: the table has it, with that kind and with a
  // fallback.
  [[nodiscard]] bool boolean(std::string_view name) const;
  [[nodiscard]] int64_t integer(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name) const;
  // The value; empty when the parameter is absent.
  [[nodiscard]] std::string string(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> strings(std::string_view name) const;
  [[nodiscard]] std::vector<int32_t> integers(std::string_view name) const;

  // Names that were given and have no effect, because the table does not have them.
  [[nodiscard]] const std::vector<std::string>& unknown() const { return unknown_; }

 private:
  [[nodiscard]] json::value value_or_fallback(std::string_view name) const;

  const ParameterTable* table_ = nullptr;
  json::object values_;
  std::vector<std::string> unknown_;
};

// A number that has no fraction, as an integer; nothing when it has one or is none.
std::optional<int64_t> as_integer(const json::value& value);

}  // namespace encore::server
