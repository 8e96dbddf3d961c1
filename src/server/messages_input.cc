#include "server/messages_input.h"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "server/conversation_json.h"

namespace encore::server {
namespace {

const Parameter kMessageParameters[] = {
    {"messages", Support::kHonoured, ParameterKind::kArray, "",
     "The conversation: objects with a role, user or assistant, and a content, a text or a list of "
     "blocks: text, tool_use, tool_result, thinking. The answer goes on from a last message of the "
     "assistant's",
     1, kMaxMessages},
    {"system", Support::kHonoured, ParameterKind::kAny, "",
     "What the system says: a text, or a list of text blocks"},
    {"tools", Support::kHonoured, ParameterKind::kArray, "[]",
     "Functions that the model may call: name, description, input_schema. Calls that "
     "are not required are not checked against the schemas",
     0, kMaxTools},
    {"tool_choice", Support::kHonoured, ParameterKind::kObject, R"({"type": "auto"})",
     "type: auto, none to leave the tools out, any for an answer that is a call, or tool, of the "
     "name. disable_parallel_tool_use: the answer ends behind its first call"},
    {"thinking", Support::kHonoured, ParameterKind::kObject, "",
     "type: enabled or disabled sets the template's variable enable_thinking; adaptive leaves it "
     "alone. Its budget has no effect"},
    {"output_config", Support::kHonoured, ParameterKind::kObject, "{}",
     "effort: the template's variable reasoning_effort. "
     "format: json_schema, with a schema that the answer fits"},
    {"chat_template_kwargs", Support::kHonoured, ParameterKind::kObject, "{}",
     "Further variables of the template"},
    {"cache_control", Support::kNoEffect, ParameterKind::kObject, "",
     "Prompts that begin alike share pages without it"},
};

// Turns messages with blocks into those of the chat API. Results of tools become messages of their
// own.
class MessageReader {
 public:
  MessageReader(const json::array& messages, json::array& out) : messages_(messages), out_(out) {}

  std::optional<ApiError> read() {
    for (index_ = 0; index_ < messages_.size(); ++index_) {
      if (auto error = read_message(messages_[index_])) return error;
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] ApiError wrong(std::string_view what) const {
    return wrong_message("messages", index_, what);
  }

  std::optional<ApiError> read_message(const json::value& message) {
    const json::object* object = message.if_object();
    if (object == nullptr) return wrong(" must be an object");
    const json::value* role = object->if_contains("role");
    const bool is_user = role != nullptr && *role == "user";
    if (!is_user && (role == nullptr || *role != "assistant"))
      return wrong(".role must be user or assistant; what the system says goes to system");
    const json::value* content = object->if_contains("content");
    if (content != nullptr && content->is_string()) {
      out_.emplace_back(json::object{{"role", *role}, {"content", *content}});
      return std::nullopt;
    }
    const json::array* blocks = content == nullptr ? nullptr : content->if_array();
    if (blocks == nullptr || blocks->empty())
      return wrong(".content must be a string, or a list of blocks");
    return is_user ? read_user(*blocks) : read_assistant(*blocks);
  }

  std::optional<ApiError> read_type(const json::value& block, std::string_view& type) const {
    const auto* text = string_at(block, "type");
    if (text == nullptr) return wrong(".content has a block that is no object with a type");
    type = *text;
    if (type == "text" && string_at(block, "text") == nullptr)
      return wrong(".content has a text block whose text is no string");
    return std::nullopt;
  }

  std::optional<ApiError> read_user(const json::array& blocks) {
    std::vector<std::string> texts;
    const auto flush = [&] {
      if (texts.empty()) return;
      out_.emplace_back(json::object{{"role", "user"}, {"content", joined_text(texts)}});
      texts.clear();
    };
    for (const json::value& block : blocks) {
      std::string_view type;
      if (auto error = read_type(block, type)) return error;
      if (type == "text") {
        texts.emplace_back(*string_at(block, "text"));
      } else if (type == "tool_result") {
        flush();
        if (auto error = read_result(block)) return error;
      } else {
        return wrong(
            fmt::format(".content has a block of the type {}: users have text and "
                        "tool_result",
                        escaped(type)));
      }
    }
    flush();
    return std::nullopt;
  }

  std::optional<ApiError> read_result(const json::value& block) {
    const auto* id = string_at(block, "tool_use_id");
    if (id == nullptr) return wrong(".content has a tool_result whose tool_use_id is no string");
    const json::value* content = block.get_object().if_contains("content");
    const auto texts = content == nullptr || content->is_null() ? std::vector<std::string>{}
                                                                : texts_of(*content, {"text"});
    if (!texts) {
      return wrong(
          ".content has a tool_result whose content is neither a string nor a list of "
          "text blocks");
    }
    json::object message{{"role", "tool"}, {"tool_call_id", *id}, {"content", joined_text(*texts)}};
    if (const auto name = names_.find(std::string(*id)); name != names_.end())
      message["name"] = name->second;
    out_.emplace_back(std::move(message));
    return std::nullopt;
  }

  std::optional<ApiError> read_assistant(const json::array& blocks) {
    std::vector<std::string> texts;
    std::vector<std::string> thoughts;
    json::array calls;
    for (const json::value& block : blocks) {
      std::string_view type;
      if (auto error = read_type(block, type)) return error;
      if (type == "text") {
        texts.emplace_back(*string_at(block, "text"));
      } else if (type == "thinking" && string_at(block, "thinking") != nullptr) {
        thoughts.emplace_back(*string_at(block, "thinking"));
      } else if (type == "tool_use") {
        if (auto error = read_call(block, calls)) return error;
      } else if (type != "redacted_thinking") {
        return wrong(
            fmt::format(".content has a block of the type {}: the assistant has text, "
                        "thinking and tool_use",
                        escaped(type)));
      }
    }
    json::object message{{"role", "assistant"}, {"content", joined_text(texts)}};
    if (!thoughts.empty()) message["reasoning_content"] = joined_text(thoughts);
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    out_.emplace_back(std::move(message));
    return std::nullopt;
  }

  std::optional<ApiError> read_call(const json::value& block, json::array& calls) {
    const auto* id = string_at(block, "id");
    const auto* name = string_at(block, "name");
    const json::value* input = block.get_object().if_contains("input");
    if (id == nullptr || name == nullptr || input == nullptr || !input->is_object()) {
      return wrong(
          ".content has a tool_use block without an id and a name, strings, and an input, "
          "an object");
    }
    names_[std::string(*id)] = std::string(*name);
    calls.emplace_back(
        json::object{{"id", *id},
                     {"type", "function"},
                     {"function", json::object{{"name", *name}, {"arguments", *input}}}});
    return std::nullopt;
  }

  const json::array& messages_;
  json::array& out_;
  size_t index_ = 0;
  std::map<std::string, std::string> names_;  // of tools, by the calls' ids
};

std::optional<ApiError> read_message_tools(const json::array& tools, ToolUse& use) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const json::object* tool = tools[i].if_object();
    if (tool == nullptr) return bad_request(where + " must be an object", "tools", "invalid_tool");
    const json::value* type = tool->if_contains("type");
    if (type != nullptr && !type->is_null() && *type != "custom") {
      return bad_request(where + " is not of the type custom: the server has no tools of its own",
                         "tools", "unsupported_parameter");
    }
    if (auto error = add_function({tool->if_contains("name"), tool->if_contains("description"),
                                   tool->if_contains("input_schema")},
                                  where, use)) {
      return error;
    }
  }
  return std::nullopt;
}

std::optional<ApiError> read_tool_choice(const json::object& choice, ToolUse& use) {
  const json::value* const type = choice.if_contains("type");
  const json::value* const name = choice.if_contains("name");
  if (type != nullptr && *type == "none") {
    use.choice = ToolChoice::kNone;
  } else if (type != nullptr && *type == "any") {
    use.choice = ToolChoice::kRequired;
  } else if (type != nullptr && *type == "tool" && name != nullptr && name->is_string()) {
    use.choice = ToolChoice::kRequired;
    use.required_name = name->get_string();
  } else if (type == nullptr || *type != "auto") {
    return bad_request("tool_choice has the type auto, none, any, or tool with a name",
                       "tool_choice", "invalid_type");
  }
  const json::value* alone = choice.if_contains("disable_parallel_tool_use");
  if (alone == nullptr || alone->is_null()) return std::nullopt;
  if (!alone->is_bool()) {
    return bad_request("tool_choice.disable_parallel_tool_use must be true or false", "tool_choice",
                       "invalid_type");
  }
  use.parallel_calls = !alone->get_bool();
  return std::nullopt;
}

std::optional<ApiError> read_thinking(const json::object& thinking, json::object& variables) {
  const json::value* type = thinking.if_contains("type");
  if (type != nullptr && *type == "adaptive") return std::nullopt;
  if (type == nullptr || (*type != "enabled" && *type != "disabled")) {
    return bad_request("thinking has the type enabled, disabled or adaptive", "thinking",
                       "invalid_type");
  }
  variables["enable_thinking"] = *type == "enabled";
  return std::nullopt;
}

std::optional<ApiError> read_output_config(const json::object& config, json::object& variables) {
  for (const auto& [key, value] : config) {
    if (value.is_null()) continue;
    if (key == "format") continue;  // of the answer, not of the prompt
    if (key != "effort" || !value.is_string()) {
      return bad_request("output_config has effort, a string, and format, an object",
                         "output_config", "unsupported_parameter");
    }
    variables["reasoning_effort"] = value;
  }
  return std::nullopt;
}

std::optional<ApiError> read_settings(const Parameters& parameters, ChatRequest& request) {
  if (const json::value* tools = parameters.find("tools")) {
    if (auto error = read_message_tools(tools->get_array(), request.tools)) return error;
  }
  if (const json::value* choice = parameters.find("tool_choice")) {
    if (auto error = read_tool_choice(choice->get_object(), request.tools)) return error;
  }
  json::object& variables = request.conversation.variables;
  if (const json::value* thinking = parameters.find("thinking")) {
    if (auto error = read_thinking(thinking->get_object(), variables)) return error;
  }
  if (const json::value* config = parameters.find("output_config")) {
    if (auto error = read_output_config(config->get_object(), variables)) return error;
  }
  add_variables(parameters, variables);
  return std::nullopt;
}

}  // namespace

ParameterTable with_message_prompt_parameters(ParameterTable own) {
  own.insert(own.end(), std::begin(kMessageParameters), std::end(kMessageParameters));
  return own;
}

std::variant<ApiError, ChatRequest> read_message_request(const Parameters& parameters,
                                                         const ServedModel& /*model*/) {
  const json::value* messages = parameters.find("messages");
  if (messages == nullptr)
    return bad_request("messages is missing", "messages", "missing_parameter");
  ChatRequest request;
  json::array& out = request.conversation.messages;
  if (const json::value* system = parameters.find("system")) {
    const auto texts = texts_of(*system, {"text"});
    if (!texts) {
      return bad_request("system must be a string, or a list of text blocks", "system",
                         "invalid_type");
    }
    if (!texts->empty())
      out.emplace_back(json::object{{"role", "system"}, {"content", joined_text(*texts)}});
  }
  if (auto error = MessageReader(messages->get_array(), out).read()) return *error;
  if (auto error = read_settings(parameters, request)) return *error;
  const json::object& last = out.back().as_object();
  if (last.at("role") == "assistant" && !last.contains("tool_calls")) {
    request.conversation.continue_final_message = true;
    request.conversation.add_generation_prompt = false;
  }
  return request;
}

}  // namespace encore::server
