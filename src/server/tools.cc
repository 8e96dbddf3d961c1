#include "server/tools.h"

#include <algorithm>

#include <fmt/format.h>

#include "server/http.h"

namespace encore::server {
namespace {

constexpr size_t kMaxNameBytes = 128;

ApiError wrong_tool(const std::string& where, std::string_view what) {
  return bad_request(where + std::string(what), "tools", "invalid_tool");
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char byte) {
           return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                  (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' || byte == '.' ||
                  byte == ':' || byte == '/';
         });
}

bool is_absent(const json::value* value) {
  return value == nullptr || value->is_null();
}

}  // namespace

std::optional<ApiError> add_function(const FunctionFields& function, const std::string& where,
                                     ToolUse& use) {
  if (function.name == nullptr || !function.name->is_string())
    return wrong_tool(where, " has no name: a string");
  const std::string name(function.name->get_string());
  if (!is_name(name)) {
    return wrong_tool(where, fmt::format(" has the name {}: names are 1 to {} letters, digits and "
                                         "_ - . : /",
                                         escaped(name), kMaxNameBytes));
  }
  const bool is_known = std::any_of(
      use.tools.begin(), use.tools.end(),
      [&](const json::value& tool) { return tool.at("function").at("name") == json::value(name); });
  if (is_known) return wrong_tool(where, fmt::format(" has the name of another one, {}", name));
  json::object copy{{"name", name}};
  if (!is_absent(function.description)) {
    if (!function.description->is_string())
      return wrong_tool(where, " has a description that is no string");
    copy["description"] = *function.description;
  }
  if (!is_absent(function.parameters)) {
    if (!function.parameters->is_object())
      return wrong_tool(where, " has parameters that are no JSON schema: an object");
    copy["parameters"] = *function.parameters;
  } else {
    // Chat templates read a function's parameters without checking that they exist, so a function
    // without parameters gets an empty schema.
    copy["parameters"] = json::object{{"type", "object"}, {"properties", json::object{}}};
  }
  use.tools.emplace_back(json::object{{"type", "function"}, {"function", std::move(copy)}});
  return std::nullopt;
}

std::optional<ApiError> leave_out(const json::value* type, const std::string& where, ToolUse& use) {
  const auto* text = type == nullptr ? nullptr : type->if_string();
  const std::string name = text == nullptr ? "" : std::string(*text);
  if (!is_name(name)) return wrong_tool(where, " must have a type, such as function");
  if (std::ranges::find(use.left_out, name) == use.left_out.end()) use.left_out.push_back(name);
  return std::nullopt;
}

std::optional<ApiError> check_left_out(const ToolUse& use, OtherTools other_tools,
                                       std::vector<std::string>& warnings) {
  if (use.left_out.empty()) return std::nullopt;
  const std::string types = fmt::format("{}", fmt::join(use.left_out, ", "));
  if (other_tools == OtherTools::kRefuse) {
    return bad_request(
        fmt::format("tools of the type {} are not supported: the server has no tools "
                    "of its own, and the model calls functions alone",
                    types),
        "tools", "unsupported_parameter");
  }
  warnings.push_back(fmt::format("tools of the type {} are left out", types));
  return std::nullopt;
}

std::optional<ApiError> read_chat_tools(const json::array& tools, ToolUse& use) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const json::object* tool = tools[i].if_object();
    const json::value* type = tool == nullptr ? nullptr : tool->if_contains("type");
    const json::value* function = tool == nullptr ? nullptr : tool->if_contains("function");
    if (type != nullptr && *type != "function") {
      if (auto error = leave_out(type, where, use)) return error;
      continue;
    }
    if (type == nullptr || function == nullptr || !function->is_object())
      return wrong_tool(where, R"( must be {"type": "function", "function": {"name": ...}})");
    const json::object& given = function->get_object();
    if (auto error = add_function({given.if_contains("name"), given.if_contains("description"),
                                   given.if_contains("parameters")},
                                  where, use)) {
      return error;
    }
    // Copies the function's other keys, such as a description of its result, because some templates
    // read them.
    json::object& taken = use.tools.back().as_object()["function"].as_object();
    for (const auto& [key, value] : given) {
      if (key != "strict" && !taken.contains(key)) taken[key] = value;
    }
  }
  return std::nullopt;
}

std::optional<ApiError> read_tool_choice(const json::value& choice, ToolUse& use) {
  if (choice == "auto") return std::nullopt;
  if (choice == "none") {
    use.choice = ToolChoice::kNone;
    return std::nullopt;
  }
  use.choice = ToolChoice::kRequired;
  if (choice == "required") return std::nullopt;
  // In the Responses API the name stands beside the type; in the chat API it is in an object
  // "function".
  const json::object* const object = choice.if_object();
  const json::value* const type = object == nullptr ? nullptr : object->if_contains("type");
  if (type != nullptr && *type == "function") {
    const json::value* const inner = object->if_contains("function");
    const json::object* const named =
        inner != nullptr && inner->is_object() ? inner->if_object() : object;
    const json::value* const name = named->if_contains("name");
    if (name != nullptr && name->is_string()) {
      use.required_name = name->get_string();
      return std::nullopt;
    }
  }
  return bad_request(
      R"(tool_choice is "auto", "none", "required", or {"type": "function"} with a name)",
      "tool_choice", "invalid_type");
}

std::vector<std::string> names_of(const ToolUse& use) {
  std::vector<std::string> names;
  for (const json::value& tool : use.tools)
    names.emplace_back(tool.at("function").at("name").as_string());
  return names;
}

std::variant<ApiError, AnswerFormat> required_calls(const ToolUse& use,
                                                    text::ToolCallFormat format) {
  AnswerFormat answer{{.kind = grammar::SourceKind::kCalls}, "tool_choice"};
  grammar::Calls& calls = answer.source.calls;
  calls.format = format;
  calls.may_be_several = use.parallel_calls && use.required_name.empty();
  for (const json::value& tool : use.tools) {
    const json::value& function = tool.at("function");
    const std::string name(function.at("name").as_string());
    if (use.required_name.empty() || name == use.required_name)
      calls.functions.push_back({name, json::exact_text(function.at("parameters"))});
  }
  if (!calls.functions.empty()) return answer;
  return bad_request(use.required_name.empty()
                         ? std::string("tool_choice requires a call, and there are no tools")
                         : fmt::format("tool_choice names {}, and there is no such tool",
                                       escaped(use.required_name.substr(0, kMaxNameBytes))),
                     "tool_choice", "invalid_value");
}

}  // namespace encore::server
