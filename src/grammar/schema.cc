#include "grammar/schema.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/json.h"

namespace encore::grammar {
namespace {

// A pattern has a state for each character; behind that the library counts in both forms.
constexpr int64_t kMostStates = 128;

// Keys of which the value is no schema and has none.
bool holds_values(std::string_view key) {
  return key == "const" || key == "enum" || key == "default" || key == "examples";
}

bool has_text(const json::object& object, std::string_view key, std::string_view text) {
  const json::value* const value = object.if_contains(key);
  return value != nullptr && value->is_string() && value->get_string() == text;
}

// Nothing for what is no length.
std::optional<int64_t> length(const json::object& object, std::string_view key, int64_t fallback) {
  const json::value* const value = object.if_contains(key);
  if (value == nullptr) return fallback;
  if (!value->is_int64() || value->get_int64() < 0) return std::nullopt;
  return value->get_int64();
}

void bound_by_pattern(json::object& schema) {
  if (!has_text(schema, "type", "string")) return;
  for (const char* const other : {"pattern", "format", "const", "enum"})
    if (schema.contains(other)) return;
  const bool is_open = !schema.contains("maxLength");
  if (is_open && !schema.contains("minLength")) return;
  const auto least = length(schema, "minLength", 0);
  const auto most = length(schema, "maxLength", kMostStates);
  if (!least || !most || *least > *most || *most > kMostStates) return;
  schema.stable_erase("minLength");
  schema.stable_erase("maxLength");
  schema["pattern"] = is_open ? fmt::format(R"(^[\s\S]{{{},}}$)", *least)
                              : fmt::format(R"(^[\s\S]{{{},{}}}$)", *least, *most);
}

void rewrite(json::value& value) {
  if (auto* const list = value.if_array()) {
    for (json::value& item : *list)
      rewrite(item);
  } else if (auto* const object = value.if_object()) {
    for (auto& member : *object)
      if (!holds_values(member.key())) rewrite(member.value());
    bound_by_pattern(*object);
  }
}

}  // namespace

std::string with_lengths_as_patterns(const std::string& schema) {
  if (schema.find("Length") == std::string::npos) return schema;
  json::value value = json::parse(schema, "schema");
  rewrite(value);
  return json::to_text(value);
}

}  // namespace encore::grammar
