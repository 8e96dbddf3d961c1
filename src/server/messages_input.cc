#include "server/messages_input.h"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "server/conversation_json.h"

namespace encore::server {
namespace {

const Parameter kMessageParameters[] = {
    {"messages", Support::kHonoured, ParameterKind::kArray, "",
     "The conversation: objects with a role, user, assistant or system, and a content, a text or a "
     "list of blocks: text, tool_use, tool_result, thinking. The answer goes on from a last "
     "message "
     "of the assistant's",
     1, kMaxMessages},
    {"system", Support::kHonoured, ParameterKind::kAny, "",
     "What the system says: a text, or a list of text blocks"},
    {"tools", Support::kHonoured, ParameterKind::kArray, "[]",
     "Functions that the model may call: name, description, input_schema. Calls that "
     "are not required are not checked against the schemas. Tools of other types than custom are "
     "left "
     "out, or refused, as --other-tools says",
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

// Adds a tool of the client's. Tools of other types are run by Anthropic's server; they are
// recorded as left out.
std::optional<ApiError> add_tool(const json::object& tool, const std::string& where, ToolUse& use) {
  const json::value* type = tool.if_contains("type");
  if (type != nullptr && !type->is_null() && *type != "custom") return leave_out(type, where, use);
  return add_function(
      {tool.if_contains("name"), tool.if_contains("description"), tool.if_contains("input_schema")},
      where, use);
}

// Converts messages with content blocks to messages of the chat API. Each tool result becomes a
// separate message.
class MessageReader {
 public:
  MessageReader(const json::array& messages, ChatRequest& request)
      : messages_(messages), out_(request.conversation.messages), tools_(request.tools) {}

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
    const json::value* content = object->if_contains("content");
    if (role != nullptr && *role == "system") return read_system(content);
    if (!is_user && (role == nullptr || *role != "assistant"))
      return wrong(".role must be user, assistant or system");
    if (content != nullptr && content->is_string()) {
      out_.emplace_back(json::object{{"role", *role}, {"content", *content}});
      return std::nullopt;
    }
    const json::array* blocks = content == nullptr ? nullptr : content->if_array();
    if (blocks == nullptr || blocks->empty())
      return wrong(".content must be a string, or a list of blocks");
    return is_user ? read_user(*blocks) : read_assistant(*blocks);
  }

  // Reads a system message that stands between other messages of a conversation.
  std::optional<ApiError> read_system(const json::value* content) {
    std::vector<std::string> texts;
    if (content != nullptr && content->is_string()) {
      texts.emplace_back(content->get_string());
    } else if (content != nullptr && content->is_array()) {
      for (const json::value& block : content->get_array()) {
        std::string_view type;
        if (auto error = read_type(block, type)) return error;
        if (type == "text") {
          texts.emplace_back(*string_at(block, "text"));
        } else if (type == "tool_addition") {
          if (auto error = read_addition(block)) return error;
        } else {
          return wrong(fmt::format(
              ".content has a block of the type {}: the system has text and tool_addition",
              escaped(type)));
        }
      }
    } else {
      return wrong(".content must be a string, or a list of blocks");
    }
    if (!texts.empty())
      out_.emplace_back(json::object{{"role", "system"}, {"content", joined_text(texts)}});
    return std::nullopt;
  }

  // Reads a content block that makes a tool available within the conversation. The chat template
  // then lists this tool with those of the parameter `tools`. If the block only names a tool of
  // that parameter, nothing is added.
  std::optional<ApiError> read_addition(const json::value& block) {
    const json::value* tool = block.get_object().if_contains("tool");
    const auto* type = tool == nullptr ? nullptr : string_at(*tool, "type");
    if (type != nullptr && *type == "tool_reference") return std::nullopt;
    const json::value* given =
        type == nullptr ? nullptr : tool->get_object().if_contains("definition");
    const json::object* definition = given == nullptr ? nullptr : given->if_object();
    if (definition == nullptr || *type != "tool_definition")
      return wrong(".content has a tool_addition without a tool_definition or a tool_reference");
    return add_tool(*definition, fmt::format("messages[{}].content", index_), tools_);
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
                                                                : result_texts(*content);
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

  // Returns the texts of a tool result. If the tool searched for other tools, the result refers to
  // the tools found, and their names are returned as texts.
  static std::optional<std::vector<std::string>> result_texts(const json::value& content) {
    if (!content.is_array()) return texts_of(content, {"text"});
    json::array texts;
    for (const json::value& block : content.get_array()) {
      const auto* type = string_at(block, "type");
      const auto* name = string_at(block, "tool_name");
      const bool is_reference = type != nullptr && *type == "tool_reference" && name != nullptr;
      texts.push_back(is_reference ? json::value{{"type", "text"}, {"text", *name}} : block);
    }
    return texts_of(texts, {"text"});
  }

  const json::array& messages_;
  json::array& out_;
  ToolUse& tools_;
  size_t index_ = 0;
  // Names of the called tools, by the ids of their calls.
  std::map<std::string, std::string> names_;
};

std::optional<ApiError> read_message_tools(const json::array& tools, ToolUse& use) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const json::object* tool = tools[i].if_object();
    if (tool == nullptr) return bad_request(where + " must be an object", "tools", "invalid_tool");
    if (auto error = add_tool(*tool, where, use)) return error;
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
    if (key == "format") continue;  // it concerns the answer and not the prompt
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
  if (auto error = read_settings(parameters, request)) return *error;
  if (auto error = MessageReader(messages->get_array(), request).read()) return *error;
  if (out.empty()) return bad_request("messages has nothing to say", "messages", "invalid_message");
  const json::object& last = out.back().as_object();
  if (last.at("role") == "assistant" && !last.contains("tool_calls")) {
    request.conversation.continue_final_message = true;
    request.conversation.add_generation_prompt = false;
  }
  return request;
}

}  // namespace encore::server
