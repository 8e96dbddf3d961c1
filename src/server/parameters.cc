#include "server/parameters.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/file.h"

namespace encore::server {
namespace {

// The largest number up to which a double represents every integer (2^53).
constexpr double kLargestExact = 9007199254740992.0;
constexpr size_t kLongestShownName = 80;
constexpr size_t kLongestShownError = 300;

std::string_view kind_text(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kAny:
      return "any value";
    case ParameterKind::kBoolean:
      return "true or false";
    case ParameterKind::kInteger:
      return "an integer";
    case ParameterKind::kNumber:
      return "a number";
    case ParameterKind::kString:
      return "a string";
    case ParameterKind::kStrings:
      return "a string or a list of strings";
    case ParameterKind::kIntegers:
      return "a list of integers";
    case ParameterKind::kArray:
      return "a list";
    case ParameterKind::kObject:
      return "an object";
  }
  return "";
}

template <typename Test>
bool is_list_of(const json::value& value, const Test& test) {
  const auto* list = value.if_array();
  return list != nullptr && std::all_of(list->begin(), list->end(), test);
}

bool has_kind(const json::value& value, ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kAny:
      return true;
    case ParameterKind::kBoolean:
      return value.is_bool();
    case ParameterKind::kInteger:
      return as_integer(value).has_value();
    case ParameterKind::kNumber:
      return value.is_number();
    case ParameterKind::kString:
      return value.is_string();
    case ParameterKind::kStrings:
      return value.is_string() ||
             is_list_of(value, [](const json::value& item) { return item.is_string(); });
    case ParameterKind::kIntegers:
      return is_list_of(value, [](const json::value& item) {
        const auto integer = as_integer(item);
        return integer && *integer == static_cast<int32_t>(*integer);
      });
    case ParameterKind::kArray:
      return value.is_array();
    case ParameterKind::kObject:
      return value.is_object();
  }
  return false;
}

std::string range_text(const Parameter& row) {
  if (std::isinf(row.max)) return fmt::format("at least {}", row.min);
  if (std::isinf(row.min)) return fmt::format("at most {}", row.max);
  return fmt::format("{} to {}", row.min, row.max);
}

std::optional<ApiError> check_range(const Parameter& row, const json::value& value) {
  std::string_view of;
  double measure = 0;
  if (value.is_number()) {
    measure = value.to_number<double>();
  } else if (const auto* list = value.if_array()) {
    of = " values";
    measure = static_cast<double>(list->size());
  } else {
    return std::nullopt;
  }
  if (measure >= row.min && measure <= row.max) return std::nullopt;
  return bad_request(fmt::format("{} is {}{}, not {}", row.name, range_text(row), of, measure),
                     std::string(row.name), "out_of_range");
}

// Returns whether a request may give this value to a refused parameter, because the value asks for
// nothing. Such values are "", [] and the parameter's fallback.
bool changes_nothing(const Parameter& row, const json::value& value) {
  if (value == "" || (value.is_array() && value.get_array().empty())) return true;
  return !row.fallback.empty() && json::is_same(value, json::parse(row.fallback, row.name));
}

std::optional<ApiError> check(const Parameter& row, const json::value& value) {
  const std::string name(row.name);
  if (row.support == Support::kRefused) {
    if (changes_nothing(row, value)) return std::nullopt;
    return bad_request(fmt::format("{} is not supported: {}", name, row.doc), name,
                       "unsupported_parameter");
  }
  if (row.support == Support::kNoEffect) return std::nullopt;
  if (!has_kind(value, row.kind)) {
    return bad_request(fmt::format("{} must be {}", name, kind_text(row.kind)), name,
                       "invalid_type");
  }
  return check_range(row, value);
}

const Parameter* find_row(const ParameterTable& table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Parameter& row) { return row.name == name; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

std::optional<int64_t> as_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (!value.is_double()) return std::nullopt;
  const double number = value.get_double();
  if (std::floor(number) != number || std::abs(number) > kLargestExact) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::variant<Parameters, ApiError> Parameters::parse(std::string_view body,
                                                     const ParameterTable& table,
                                                     UnknownParameters unknown) {
  Parameters parameters;
  parameters.table_ = &table;
  try {
    json::value value = json::parse(without_byte_order_mark(body), "the request's body");
    if (!value.is_object()) return bad_request("the request's body must be a JSON object");
    parameters.values_ = std::move(value.get_object());
  } catch (const Error& error) {
    // The parser's message may quote a number of any length, so it is shortened.
    return bad_request(std::string(error.what()).substr(0, kLongestShownError), "", "invalid_json");
  }
  for (const auto& [key, value] : parameters.values_) {
    const std::string_view name(key.data(), key.size());
    if (value.is_null()) continue;
    const Parameter* row = find_row(table, name);
    if (row == nullptr) {
      if (unknown == UnknownParameters::kRefuse) {
        return bad_request(fmt::format("there is no parameter {}", escaped(name)),
                           name.size() <= kLongestShownName ? std::string(name) : "",
                           "unknown_parameter");
      }
      parameters.unknown_.emplace_back(name);
      continue;
    }
    if (auto problem = check(*row, value)) return *problem;
  }
  return parameters;
}

const json::value* Parameters::find(std::string_view name) const {
  const json::value* value = values_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

json::value Parameters::value_or_fallback(std::string_view name) const {
  if (const json::value* value = find(name)) return *value;
  const Parameter* row = find_row(*table_, name);
  ENCORE_CHECK(row != nullptr && !row->fallback.empty(), "parameter {}", name);
  return json::parse(row->fallback, name);
}

bool Parameters::boolean(std::string_view name) const {
  return value_or_fallback(name).as_bool();
}

int64_t Parameters::integer(std::string_view name) const {
  return *as_integer(value_or_fallback(name));
}

double Parameters::number(std::string_view name) const {
  return value_or_fallback(name).to_number<double>();
}

std::string Parameters::string(std::string_view name) const {
  const json::value* value = find(name);
  return value == nullptr ? "" : std::string(value->as_string());
}

std::vector<std::string> Parameters::strings(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {std::string(value->as_string())};
  std::vector<std::string> list;
  for (const json::value& item : value->as_array())
    list.emplace_back(item.as_string());
  return list;
}

std::vector<int32_t> Parameters::integers(std::string_view name) const {
  const json::value* value = find(name);
  std::vector<int32_t> list;
  if (value == nullptr) return list;
  for (const json::value& item : value->as_array())
    list.push_back(static_cast<int32_t>(*as_integer(item)));
  return list;
}

}  // namespace encore::server
