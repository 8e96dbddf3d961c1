#include "text/answer/answer_markup.h"

#include <initializer_list>

#include "text/answer/marker_search.h"

namespace encore::text {
namespace {

// A conversation in which the model has called a tool, and the list of tools that goes with it.
constexpr const char* kCallMessages = R"([
    {"role": "user", "content": "question"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "call00001",
     "function": {"name": "probed_tool", "arguments": {"key": "value"}}}]},
    {"role": "tool", "tool_call_id": "call00001", "name": "probed_tool", "content": "1"}])";
constexpr const char* kCallTools = R"([
    {"type": "function", "function": {"name": "listed_tool", "description": "A tool",
     "parameters": {"type": "object", "required": ["key"],
     "properties": {"key": {"type": "string", "description": "A key"}}}}}])";
constexpr std::string_view kProbedText = "probed_text";
constexpr std::string_view kUnknownRole = "probed_role";
constexpr const char* kLateSystem = R"([
    {"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"},
    {"role": "system", "content": "probed_text"}, {"role": "user", "content": "question"}])";

std::string rendered(const ChatTemplate& chat_template, std::string_view messages,
                     std::string_view tools = "") {
  Conversation conversation{.messages = json::parse(messages, "messages").as_array()};
  chat_template.fit_contents(conversation.messages);
  if (!tools.empty()) conversation.tools = json::parse(tools, "tools").as_array();
  const ChatPrompt prompt = chat_template.render(conversation);
  const auto* text = std::get_if<std::string>(&prompt);
  return text == nullptr ? "" : *text;
}

// Returns the format in which the template shows a call that the model has made.
ToolCallFormat find_tool_calls(const ChatTemplate& chat_template) {
  const std::string text = rendered(chat_template, kCallMessages, kCallTools);
  std::string call;
  for (const char byte : text) {
    if (!is_space(byte)) call += byte;
  }
  if (call.find(R"(<tool_call>{"name":"probed_tool","arguments":{"key":"value"}}</tool_call>)") !=
      std::string::npos)
    return ToolCallFormat::kHermes;
  if (call.find(R"({"name":"probed_tool","parameters":{"key":"value"}})") != std::string::npos)
    return ToolCallFormat::kLlama3;
  if (call.find(R"([TOOL_CALLS][{"name":"probed_tool","arguments":{"key":"value"})") !=
      std::string::npos)
    return ToolCallFormat::kMistral;
  return ToolCallFormat::kNone;
}

// Returns whether the template shows messages of the role, and writes them differently from
// messages of an unknown role.
bool knows_role(const ChatTemplate& chat_template, std::string_view role) {
  const auto of_role = [&](std::string_view name) {
    return rendered(chat_template, fmt::format(R"([{{"role": "{}", "content": "{}"}},
                                               {{"role": "user", "content": "question"}}])",
                                               name, kProbedText));
  };
  const std::string known = of_role(role);
  std::string unknown = of_role(kUnknownRole);
  if (const size_t at = unknown.find(kUnknownRole); at != std::string::npos)
    unknown.replace(at, kUnknownRole.size(), role);
  return known.find(kProbedText) != std::string::npos && known != unknown;
}

std::vector<int32_t> special_tokens(const Tokenizer& tokenizer,
                                    std::initializer_list<std::string_view> markers) {
  std::vector<int32_t> ids;
  for (const std::string_view marker : markers) {
    const auto id = tokenizer.token_id(marker);
    if (id && tokenizer.is_special(*id)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace

AnswerMarkup find_markup(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  AnswerMarkup markup;
  if (!chat_template.exists()) return markup;
  const std::string_view source = chat_template.source();
  markup.has_reasoning = source.find("</think>") != std::string_view::npos;
  markup.knows_developers = knows_role(chat_template, "developer");
  markup.takes_late_systems =
      rendered(chat_template, kLateSystem).find(kProbedText) != std::string::npos;
  markup.tool_calls = find_tool_calls(chat_template);
  markup.reasoning_tokens = special_tokens(tokenizer, {"<think>", "</think>"});
  markup.call_tokens =
      special_tokens(tokenizer, {"<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]"});
  return markup;
}

bool opens_reasoning(std::string_view prompt) {
  while (!prompt.empty() && is_space(prompt.back()))
    prompt.remove_suffix(1);
  return prompt.ends_with("<think>");
}

}  // namespace encore::text
