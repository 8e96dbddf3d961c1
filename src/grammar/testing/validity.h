// Checks answers against schemas with code that is independent of the grammars, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/regex.h"

namespace encore::grammar::testing {

inline bool matches(const std::string& text, const std::string& pattern) {
  const text::Regex regex("^(?:" + pattern + ")$", "the test");
  std::vector<text::Span> found;
  regex.find_all(text, {0, static_cast<uint32_t>(text.size())}, found);
  return found.size() == 1 && found[0].size() == text.size();
}

// Returns whether `value` fits the schema. Supports only the keywords that the tests' schemas use.
inline bool is_valid(const json::value& value, const json::value& schema) {
  const json::object& rules = schema.get_object();
  const auto number = [&](const char* key, double fallback) {
    return rules.contains(key) ? rules.at(key).to_number<double>() : fallback;
  };
  if (const auto* const options = rules.if_contains("anyOf")) {
    return std::any_of(options->get_array().begin(), options->get_array().end(),
                       [&](const json::value& option) { return is_valid(value, option); });
  }
  if (const auto* const values = rules.if_contains("enum")) {
    const json::array& list = values->get_array();
    return std::find(list.begin(), list.end(), value) != list.end();
  }
  const std::string type = rules.at("type").get_string().c_str();
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "integer") {
    return value.is_number() &&
           std::floor(value.to_number<double>()) == value.to_number<double>() &&
           value.to_number<double>() >= number("minimum", -1e300) &&
           value.to_number<double>() <= number("maximum", 1e300);
  }
  if (type == "number") return value.is_number();
  if (type == "string") {
    if (!value.is_string()) return false;
    const std::string text = value.get_string().c_str();
    if (rules.contains("pattern")) return matches(text, rules.at("pattern").get_string().c_str());
    const auto is_first = [](char c) { return (static_cast<uint8_t>(c) & 0xc0U) != 0x80; };
    const auto length =
        std::count_if(value.get_string().begin(), value.get_string().end(), is_first);
    return length >= number("minLength", 0) && length <= number("maxLength", 1e300);
  }
  if (type == "array") {
    if (!value.is_array()) return false;
    const json::array& items = value.get_array();
    const auto size = static_cast<double>(items.size());
    return size >= number("minItems", 0) && size <= number("maxItems", 1e300) &&
           std::all_of(items.begin(), items.end(),
                       [&](const json::value& item) { return is_valid(item, rules.at("items")); });
  }
  if (!value.is_object()) return false;
  const json::object& object = value.get_object();
  for (const auto& [key, member] : object) {
    const auto* const rule = rules.at("properties").get_object().if_contains(key);
    if (rule == nullptr || !is_valid(member, *rule)) return false;
  }
  if (!rules.contains("required")) return true;
  const json::array& required = rules.at("required").get_array();
  return std::all_of(required.begin(), required.end(),
                     [&](const json::value& key) { return object.contains(key.get_string()); });
}

}  // namespace encore::grammar::testing
