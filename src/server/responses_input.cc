#include "server/responses_input.h"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "server/conversation_json.h"

namespace encore::server {
namespace {

const Parameter kResponseParameters[] = {
    {"input", Support::kHonoured, ParameterKind::kAny, "",
     "What the user says, a text, or a list of items: messages, function_call, "
     "function_call_output and reasoning"},
    {"instructions", Support::kHonoured, ParameterKind::kString, "",
     "What the system says ahead of all else"},
    {"tools", Support::kHonoured, ParameterKind::kArray, "[]",
     "Functions that the model may call: type function, name, description, parameters. Calls that "
     "are not required are not checked against the schemas, whether they are strict or not. Tools "
     "of "
     "other types are left out, or refused, as --other-tools says",
     0, kMaxTools},
    {"tool_choice", Support::kHonoured, ParameterKind::kAny, "\"auto\"",
     "\"auto\", \"none\" to leave the tools out, \"required\" for an answer that is a call, or a "
     "function by name, which is called; required calls fit the schemas"},
    {"parallel_tool_calls", Support::kHonoured, ParameterKind::kBoolean, "true",
     "false: the answer ends behind its first call of a tool"},
    {"reasoning", Support::kHonoured, ParameterKind::kObject, "{}",
     "effort: the template's variable reasoning_effort, and none sets enable_thinking to false. "
     "Summaries are not made"},
    {"chat_template_kwargs", Support::kHonoured, ParameterKind::kObject, "{}",
     "Further variables of the template"},
};

std::optional<std::vector<std::string>> item_texts(const json::value* content) {
  if (content == nullptr) return std::nullopt;
  return texts_of(*content,
                  {"input_text", "output_text", "text", "reasoning_text", "summary_text"});
}

// Converts input items to messages of the chat API. Successive reasoning, text and calls of the
// assistant become one message.
class ItemReader {
 public:
  ItemReader(const text::AnswerMarkup& markup, json::array& out) : markup_(markup), out_(out) {}

  std::optional<ApiError> read(const json::array& items) {
    for (index_ = 0; index_ < items.size(); ++index_) {
      if (!items[index_].is_object()) return wrong(" must be an object");
      if (auto error = read_item(items[index_])) return error;
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] ApiError wrong(std::string_view what) const {
    return wrong_message("input", index_, what);
  }

  std::optional<ApiError> read_item(const json::value& item) {
    const auto* type = string_at(item, "type");
    if (type == nullptr || *type == "message") return read_message(item);
    if (*type == "function_call") return read_call(item);
    if (*type == "function_call_output") return read_output(item);
    if (*type == "reasoning") return read_reasoning(item);
    if (*type == "item_reference")
      return wrong(" refers to an item that is stored: nothing is, so send the item itself");
    return wrong(
        fmt::format(" is of the type {}: there are message, function_call, "
                    "function_call_output and reasoning",
                    escaped(std::string_view(*type))));
  }

  std::optional<ApiError> read_message(const json::value& item) {
    const auto* given = string_at(item, "role");
    const std::string role(given == nullptr ? "" : std::string_view(*given));
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return wrong(".role must be user, assistant, system or developer");
    const auto texts = item_texts(item.get_object().if_contains("content"));
    if (!texts) {
      return wrong(
          ".content must be a string, or a list of input_text or output_text: only text "
          "is understood");
    }
    if (role == "assistant") {
      json::object& message = assistant(Part::kContent);
      message["content"] = joined_text(*texts);
      return std::nullopt;
    }
    const bool is_system = role == "developer" && !markup_.knows_developers;
    add({{"role", is_system ? "system" : role}, {"content", joined_text(*texts)}});
    return std::nullopt;
  }

  std::optional<ApiError> read_call(const json::value& item) {
    const auto* id = string_at(item, "call_id");
    const auto* name = string_at(item, "name");
    const auto* arguments = string_at(item, "arguments");
    if (id == nullptr || name == nullptr || arguments == nullptr)
      return wrong(" is a function_call without call_id, name and arguments, strings");
    names_[std::string(*id)] = std::string(*name);
    json::value& calls = assistant(Part::kCall)["tool_calls"];
    if (!calls.is_array()) calls.emplace_array();
    calls.get_array().emplace_back(json::object{
        {"id", *id},
        {"type", "function"},
        {"function", json::object{{"name", *name},
                                  {"arguments", arguments_object(std::string_view(*arguments))}}}});
    return std::nullopt;
  }

  std::optional<ApiError> read_output(const json::value& item) {
    const auto* id = string_at(item, "call_id");
    const auto texts = item_texts(item.get_object().if_contains("output"));
    if (id == nullptr || !texts) {
      return wrong(
          " is a function_call_output without a call_id, a string, and an output, a "
          "string or a list of input_text");
    }
    json::object message{{"role", "tool"}, {"tool_call_id", *id}, {"content", joined_text(*texts)}};
    if (const auto name = names_.find(std::string(*id)); name != names_.end())
      message["name"] = name->second;
    add(std::move(message));
    return std::nullopt;
  }

  // Reads a reasoning item. Its summary is used if it lacks the reasoning's text.
  std::optional<ApiError> read_reasoning(const json::value& item) {
    for (const char* key : {"content", "summary"}) {
      const json::value* given = item.get_object().if_contains(key);
      if (given == nullptr || given->is_null()) continue;
      const auto texts = item_texts(given);
      if (!texts) return wrong(fmt::format(".{} must be a list of texts", key));
      if (texts->empty()) continue;
      assistant(Part::kReasoning)["reasoning_content"] = joined_text(*texts);
      return std::nullopt;
    }
    return std::nullopt;
  }

  void add(json::object message) {
    out_.emplace_back(std::move(message));
    is_assistant_ = false;
  }

  // Returns the assistant's message to which a part is added. This is the last message, unless it
  // already has a part that must come behind the new one.
  enum class Part : uint8_t { kReasoning, kContent, kCall };
  json::object& assistant(Part part) {
    if (is_assistant_) {
      json::object& last = out_.back().get_object();
      const bool has_text = last.contains("tool_calls") || last.at("content") != "";
      const bool has_reasoning = has_text || last.contains("reasoning_content");
      if (part == Part::kCall || !(part == Part::kContent ? has_text : has_reasoning)) return last;
    }
    out_.emplace_back(json::object{{"role", "assistant"}, {"content", ""}});
    is_assistant_ = true;
    return out_.back().get_object();
  }

  const text::AnswerMarkup& markup_;
  json::array& out_;
  size_t index_ = 0;
  bool is_assistant_ = false;  // whether the last message is the assistant's and can be extended
  // Names of the called functions, by the ids of their calls.
  std::map<std::string, std::string> names_;
};

std::optional<ApiError> read_input(const Parameters& parameters, const text::AnswerMarkup& markup,
                                   json::array& messages) {
  const json::value* input = parameters.find("input");
  if (input == nullptr) return bad_request("input is missing", "input", "missing_parameter");
  if (parameters.has("instructions")) {
    messages.emplace_back(
        json::object{{"role", "system"}, {"content", parameters.string("instructions")}});
  }
  if (input->is_string()) {
    messages.emplace_back(json::object{{"role", "user"}, {"content", *input}});
    return std::nullopt;
  }
  const json::array* items = input->if_array();
  if (items == nullptr || items->empty() || std::ssize(*items) > kMaxMessages) {
    return bad_request(
        fmt::format("input must be a string, or a list of 1 to {} items", kMaxMessages), "input",
        "invalid_type");
  }
  return ItemReader(markup, messages).read(*items);
}

std::optional<ApiError> read_response_tools(const json::array& tools, ToolUse& use) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const auto* type = string_at(tools[i], "type");
    if (type == nullptr || *type != "function") {
      const json::object* other = tools[i].if_object();
      const json::value* given = other == nullptr ? nullptr : other->if_contains("type");
      if (auto error = leave_out(given, where, use)) return error;
      continue;
    }
    const json::object& tool = tools[i].get_object();
    if (auto error = add_function({tool.if_contains("name"), tool.if_contains("description"),
                                   tool.if_contains("parameters")},
                                  where, use)) {
      return error;
    }
  }
  return std::nullopt;
}

std::optional<ApiError> read_reasoning(const json::object& reasoning, json::object& variables) {
  for (const auto& [key, value] : reasoning) {
    if (value.is_null()) continue;
    if (key == "effort" && value.is_string()) {
      variables["reasoning_effort"] = value;
      if (value == "none") variables["enable_thinking"] = false;
    } else if (key != "summary" && key != "generate_summary") {
      return bad_request("reasoning has effort, a string, and summary", "reasoning",
                         "unsupported_parameter");
    }
  }
  return std::nullopt;
}

}  // namespace

ParameterTable with_response_prompt_parameters(ParameterTable own) {
  own.insert(own.end(), std::begin(kResponseParameters), std::end(kResponseParameters));
  return own;
}

std::variant<ApiError, ChatRequest> read_response_request(const Parameters& parameters,
                                                          const ServedModel& model) {
  ChatRequest request;
  request.param = "input";
  if (auto error = read_input(parameters, model.markup, request.conversation.messages))
    return *error;
  if (const json::value* tools = parameters.find("tools")) {
    if (auto error = read_response_tools(tools->get_array(), request.tools)) return *error;
  }
  if (const json::value* choice = parameters.find("tool_choice")) {
    if (auto error = read_tool_choice(*choice, request.tools)) return *error;
  }
  request.tools.parallel_calls = parameters.boolean("parallel_tool_calls");
  json::object& variables = request.conversation.variables;
  if (const json::value* reasoning = parameters.find("reasoning")) {
    if (auto error = read_reasoning(reasoning->get_object(), variables)) return *error;
  }
  add_variables(parameters, variables);
  return request;
}

}  // namespace encore::server
