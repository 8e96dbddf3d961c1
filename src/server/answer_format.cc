#include "server/answer_format.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace encore::server {
namespace {

using grammar::Source;
using grammar::SourceKind;

ApiError wrong(const std::string& param, const std::string& why) {
  return bad_request(fmt::format("{} {}", param, why), param, "invalid_value");
}

ApiError unknown_member(const std::string& param, std::string_view key) {
  return bad_request(fmt::format("{} has no {}", param, escaped(std::string(key.substr(0, 40)))),
                     param, "unknown_parameter");
}

// Returns the text of a schema, which is given as an object, as a boolean, or as text. Returns
// nothing for other values.
std::optional<std::string> schema_text(const json::value& schema) {
  if (schema.is_object() || schema.is_bool()) return json::exact_text(schema);
  if (const auto* text = schema.if_string()) return std::string(*text);
  return std::nullopt;
}

// Reads an object that holds a schema. Its members `name` and `description` have no effect.
// `strict` has none either, since every answer fits the schema in any case.
std::optional<ApiError> read_schema(const json::object& members, const std::string& param,
                                    std::optional<AnswerFormat>& format) {
  const json::value* schema = nullptr;
  for (const auto& [key, value] : members) {
    const bool is_text = key == "name" || key == "description";
    if (key == "schema") {
      schema = &value;
    } else if (is_text ? !(value.is_string() || value.is_null())
                       : key == "strict" && !(value.is_bool() || value.is_null())) {
      return wrong(param, fmt::format("has a {} of the wrong type", std::string_view(key)));
    } else if (!is_text && key != "strict" && key != "type") {
      return unknown_member(param, key);
    }
  }
  if (schema == nullptr || !schema->is_object())
    return wrong(param, "needs a schema, which is an object");
  format =
      AnswerFormat{{.kind = SourceKind::kJsonSchema, .text = json::exact_text(*schema)}, param};
  return std::nullopt;
}

std::optional<ApiError> read_choice(const json::value& value, const std::string& param,
                                    Source& source) {
  source.kind = SourceKind::kChoice;
  const json::array* list = value.if_array();
  if (list == nullptr || list->empty()) return wrong(param, "is a list of strings");
  for (const json::value& choice : *list) {
    if (!choice.is_string()) return wrong(param, "is a list of strings");
    source.choices.emplace_back(choice.get_string());
  }
  return std::nullopt;
}

// Reads one member of the parameter structured_outputs.
std::optional<ApiError> read_output(std::string_view key, const json::value& value,
                                    const std::string& param, Source& source) {
  if (key == "choice") return read_choice(value, param, source);
  if (key == "json_object") {
    return value == json::value(true) ? std::nullopt : std::optional(wrong(param, "is true"));
  }
  if (key == "json") {
    source.kind = SourceKind::kJsonSchema;
    const auto text = schema_text(value);
    if (!text) return wrong(param, "is a JSON schema: an object, or its text");
    source.text = *text;
    return std::nullopt;
  }
  source.kind = key == "regex" ? SourceKind::kRegex : SourceKind::kEbnf;
  if (!value.is_string()) return wrong(param, "is a string");
  source.text = std::string(value.get_string());
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> read_openai_format(const json::value& value, const std::string& param,
                                           const std::string& wrapper,
                                           std::optional<AnswerFormat>& format) {
  const json::object* const members = value.if_object();
  const json::value* const type = members == nullptr ? nullptr : members->if_contains("type");
  if (type == nullptr || !type->is_string())
    return wrong(param, "is an object with a type: text, json_object or json_schema");
  if (*type == "json_schema") {
    if (wrapper.empty()) return read_schema(*members, param, format);
    for (const auto& [key, unused] : *members) {
      if (key != "type" && key != wrapper) return unknown_member(param, key);
    }
    const json::value* const inner = members->if_contains(wrapper);
    if (inner == nullptr || !inner->is_object())
      return wrong(param, fmt::format("of the type json_schema has an object {}", wrapper));
    return read_schema(inner->get_object(), param, format);
  }
  for (const auto& [key, unused] : *members) {
    if (key != "type") return unknown_member(param, key);
  }
  if (*type == "text") return std::nullopt;
  if (*type != "json_object") {
    return bad_request(
        fmt::format("{} has the type text, json_object or json_schema; structured_outputs of chat "
                    "and completions takes regex, choice and grammar",
                    param),
        param, "unsupported_parameter");
  }
  format = AnswerFormat{{}, param};
  return std::nullopt;
}

std::optional<ApiError> read_structured_outputs(const json::object& outputs,
                                                std::optional<AnswerFormat>& format) {
  constexpr std::array<std::string_view, 5> kKinds = {"json", "json_object", "regex", "choice",
                                                      "grammar"};
  const std::string param = "structured_outputs";
  for (const auto& [key, value] : outputs) {
    if (value.is_null()) continue;
    if (std::find(kKinds.begin(), kKinds.end(), std::string_view(key)) == kKinds.end())
      return unknown_member(param, key);
    if (key == "json_object" && value == json::value(false)) continue;
    if (format) return wrong(param, "has one of json, json_object, regex, choice and grammar");
    format = AnswerFormat{{}, fmt::format("{}.{}", param, std::string_view(key))};
    if (auto error = read_output(key, value, format->param, format->source)) return error;
  }
  if (!format) return wrong(param, "has one of json, json_object, regex, choice and grammar");
  return std::nullopt;
}

}  // namespace encore::server
