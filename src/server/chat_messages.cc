// Reads the parameters of the chat API that define the prompt.
#include <optional>

#include <fmt/format.h>

#include "server/chat_prompt.h"
#include "server/conversation_json.h"

namespace encore::server {
namespace {

const Parameter kChatParameters[] = {
    {"messages", Support::kHonoured, ParameterKind::kArray, "",
     "The conversation: objects with a role and a content, a text or a list of texts; answers may "
     "have tool_calls and reasoning_content",
     1, kMaxMessages},
    {"tools", Support::kHonoured, ParameterKind::kArray, "[]",
     "Functions that the model may call: their names, descriptions and JSON schemas. Calls that "
     "are not required are not checked against the schemas, whether they are strict or not. Tools "
     "of "
     "other types are left out, or refused, as --other-tools says",
     0, kMaxTools},
    {"tool_choice", Support::kHonoured, ParameterKind::kAny, "\"auto\"",
     "\"auto\", \"none\" to leave the tools out, \"required\" for an answer that is a call, or a "
     "function by name, which is called; required calls fit the schemas"},
    {"add_generation_prompt", Support::kHonoured, ParameterKind::kBoolean, "true",
     "End the prompt with the header of a reply; false with continue_final_message"},
    {"continue_final_message", Support::kHonoured, ParameterKind::kBoolean, "false",
     "End the prompt within the last message, which the answer goes on from"},
    {"add_special_tokens", Support::kHonoured, ParameterKind::kBoolean, "false",
     "Put the tokenizer's special tokens around what the template gives"},
    {"chat_template_kwargs", Support::kHonoured, ParameterKind::kObject, "{}",
     "Further variables of the template, such as enable_thinking"},
    {"documents", Support::kHonoured, ParameterKind::kArray, "",
     "What the template may quote from"},
    {"reasoning_effort", Support::kHonoured, ParameterKind::kString, "",
     "The template's variable of that name"},
    {"chat_template", Support::kRefused, ParameterKind::kString, "",
     "the template is the checkpoint's"},
};

// Checks and rewrites the messages of a chat for its template. A template cannot be relied on to
// reject wrong values: it would print them, or leave them out.
class ChatMessageReader {
 public:
  explicit ChatMessageReader(const text::AnswerMarkup& markup) : markup_(markup) {}

  std::optional<ApiError> read(json::value& message, size_t index) const {
    json::object* object = message.if_object();
    if (object == nullptr) return wrong(index, " must be an object");
    json::value* role = object->if_contains("role");
    if (role == nullptr || !role->is_string()) return wrong(index, ".role must be a string");
    if (*role == "developer" && !markup_.knows_developers) *role = "system";
    if (json::value* content = object->if_contains("content"); content != nullptr) {
      if (auto error = read_content(*content, index)) return error;
    }
    json::value* calls = object->if_contains("tool_calls");
    if (calls == nullptr || calls->is_null()) return std::nullopt;
    if (!calls->is_array()) return wrong(index, ".tool_calls must be a list");
    // Chat templates check only whether a message has a list of tool calls, and then expect at
    // least one call in it. So an empty list is removed.
    if (calls->get_array().empty()) {
      *calls = nullptr;
      return std::nullopt;
    }
    for (json::value& call : calls->get_array()) {
      if (auto error = read_call(call, index)) return error;
    }
    return std::nullopt;
  }

 private:
  static ApiError wrong(size_t index, std::string_view what) {
    return wrong_message("messages", index, what);
  }

  std::optional<ApiError> read_content(json::value& content, size_t index) const {
    if (content.is_null() || content.is_string()) return std::nullopt;
    if (!content.is_array()) return wrong(index, ".content must be a string, or a list of texts");
    if (!texts_of(content, {"text"})) {
      return wrong(
          index, R"(.content has a part that is not {"type": "text", "text": "..."}: only text is)"
                 " understood");
    }
    return std::nullopt;
  }

  static std::optional<ApiError> read_call(json::value& call, size_t index) {
    json::object* object = call.if_object();
    json::value* value = object == nullptr ? nullptr : object->if_contains("function");
    json::object* function = value == nullptr ? nullptr : value->if_object();
    const json::value* name = function == nullptr ? nullptr : function->if_contains("name");
    if (name == nullptr || !name->is_string())
      return wrong(index, ".tool_calls has a call without a function and its name");
    json::value& arguments = (*function)["arguments"];
    if (arguments.is_null()) arguments = json::object{};
    if (arguments.is_string())
      arguments = arguments_object(std::string_view(arguments.get_string()));
    else if (!arguments.is_object())
      return wrong(index,
                   ".tool_calls has arguments that are neither JSON in a string nor an object");
    return std::nullopt;
  }

  const text::AnswerMarkup& markup_;
};

std::optional<ApiError> read_tools(const Parameters& parameters, ToolUse& use) {
  if (const json::value* tools = parameters.find("tools")) {
    if (auto error = read_chat_tools(tools->get_array(), use)) return error;
  }
  if (const json::value* choice = parameters.find("tool_choice"))
    return read_tool_choice(*choice, use);
  return std::nullopt;
}

}  // namespace

ParameterTable with_chat_prompt_parameters(ParameterTable own) {
  own.insert(own.end(), std::begin(kChatParameters), std::end(kChatParameters));
  return own;
}

std::variant<ApiError, ChatRequest> read_chat_request(const Parameters& parameters,
                                                      const ServedModel& model) {
  const json::value* messages = parameters.find("messages");
  if (messages == nullptr)
    return bad_request("messages is missing", "messages", "missing_parameter");
  ChatRequest request;
  text::Conversation& conversation = request.conversation;
  conversation.messages = messages->as_array();
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    if (auto error = ChatMessageReader(model.markup).read(conversation.messages[i], i))
      return *error;
  }
  if (auto error = read_tools(parameters, request.tools)) return *error;
  conversation.continue_final_message = parameters.boolean("continue_final_message");
  conversation.add_generation_prompt = parameters.has("add_generation_prompt")
                                           ? parameters.boolean("add_generation_prompt")
                                           : !conversation.continue_final_message;
  if (const json::value* documents = parameters.find("documents"))
    conversation.documents = documents->as_array();
  if (parameters.has("reasoning_effort"))
    conversation.variables["reasoning_effort"] = *parameters.find("reasoning_effort");
  add_variables(parameters, conversation.variables);
  request.add_special_tokens = parameters.boolean("add_special_tokens");
  return request;
}

}  // namespace encore::server
