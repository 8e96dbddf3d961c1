// Describes the parameters of an API in one table (ParameterTable), by which they are read, checked
// and documented.
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
  kNoEffect,  // accepted, but has no effect
  kRefused,   // an error, unless it has the value that changes nothing: the fallback, "" or []
};

enum class ParameterKind : uint8_t {
  kAny,
  kBoolean,
  kInteger,
  kNumber,
  kString,
  kStrings,   // a string or a list of strings
  kIntegers,  // a list of integers
  kArray,
  kObject,
};

struct Parameter {
  std::string_view name;
  Support support = Support::kHonoured;
  ParameterKind kind = ParameterKind::kAny;
  std::string_view fallback;  // as JSON: the value if it is absent; empty: `doc` says it
  std::string_view doc;       // the description; for a refused parameter, the reason
  // The least and the greatest value of a number, or the least and the greatest length of a list.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};
using ParameterTable = std::vector<Parameter>;

// Says whether a request that has parameters which are not in the ParameterTable is refused, or
// answered with a warning in the log.
enum class UnknownParameters : uint8_t { kRefuse, kWarn };

// The parameters of one request. Those that the API's ParameterTable lists as supported have been
// checked: each has the kind that the table says and is in range. A parameter whose value is null
// counts as absent.
class Parameters {
 public:
  // Parses the JSON object in `body` and checks its members against `table`. Lifetime: `table` must
  // outlive the result.
  static std::variant<Parameters, ApiError> parse(std::string_view body,
                                                  const ParameterTable& table,
                                                  UnknownParameters unknown);

  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  // Returns the parameter's value, or null if it is absent.
  [[nodiscard]] const json::value* find(std::string_view name) const;
  // Return the parameter's value, or the fallback of the ParameterTable if it is absent. REQUIRES:
  // the ParameterTable has the parameter, with this kind and with a fallback.
  [[nodiscard]] bool boolean(std::string_view name) const;
  [[nodiscard]] int64_t integer(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name) const;
  // Return the parameter's value, or an empty one if it is absent.
  [[nodiscard]] std::string string(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> strings(std::string_view name) const;
  [[nodiscard]] std::vector<int32_t> integers(std::string_view name) const;

  // Returns the names of those parameters of the request that are not in the ParameterTable. They
  // have no effect.
  [[nodiscard]] const std::vector<std::string>& unknown() const { return unknown_; }

 private:
  [[nodiscard]] json::value value_or_fallback(std::string_view name) const;

  const ParameterTable* table_ = nullptr;
  json::object values_;
  std::vector<std::string> unknown_;
};

// Returns a number without a fraction as an integer. Returns nothing if `value` is not such a
// number.
std::optional<int64_t> as_integer(const json::value& value);

}  // namespace encore::server
