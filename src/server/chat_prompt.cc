#include "server/chat_prompt.h"

#include <optional>

#include <fmt/format.h>

#include "server/conversation_json.h"
#include "server/generation_parameters.h"

namespace encore::server {
namespace {

constexpr size_t kLongestMessage = 500;

std::string_view code_of(text::ChatError::Kind kind) {
  switch (kind) {
    case text::ChatError::Kind::kNoTemplate:
      return "no_chat_template";
    case text::ChatError::Kind::kConversation:
    case text::ChatError::Kind::kRefused:
      return "invalid_message";
    case text::ChatError::Kind::kTemplate:
      return "template_failed";
    case text::ChatError::Kind::kLimit:
      return "template_limit";
  }
  return "";
}

// Shortens a template's error message, which may quote texts of any length from the request.
std::string shortened(std::string message) {
  if (message.size() <= kLongestMessage) return message;
  size_t end = kLongestMessage;
  while (end > 0 && (static_cast<uint8_t>(message[end]) & 0xC0U) == 0x80U)
    --end;
  return message.substr(0, end) + "...";
}

// Passes the tools to the template, and sets the rules by which tool calls are found in the answer.
std::optional<ApiError> use_tools(ChatRequest& request, const ServedModel& model,
                                  ChatPrompt& result) {
  const bool is_required = request.tools.choice == ToolChoice::kRequired;
  if (request.tools.choice == ToolChoice::kNone) return std::nullopt;
  if (request.tools.tools.empty() && !is_required) return std::nullopt;
  if (model.markup.tool_calls == text::ToolCallFormat::kNone) {
    return bad_request(
        "tools is not supported by this model: its chat template writes calls in no format that is "
        "known (hermes, llama3, mistral); leave tools out, or start the server with another "
        "--chat-template",
        "tools", "unsupported_parameter");
  }
  if (is_required) {
    auto calls = required_calls(request.tools, model.markup.tool_calls);
    if (auto* error = std::get_if<ApiError>(&calls)) return *error;
    result.required_calls = std::get<AnswerFormat>(std::move(calls));
  }
  result.answer.tool_calls = model.markup.tool_calls;
  result.answer.tools = names_of(request.tools);
  result.answer.parallel_calls = request.tools.parallel_calls;
  request.conversation.tools = std::move(request.tools.tools);
  return std::nullopt;
}

// Returns whether the prompt leaves a reasoning section open, so that the answer begins within it.
bool starts_in_reasoning(const text::Conversation& conversation, std::string_view prompt) {
  if (!conversation.continue_final_message) return text::opens_reasoning(prompt);
  const size_t opened = prompt.rfind("<think>");
  const size_t closed = prompt.rfind("</think>");
  return opened != std::string::npos && (closed == std::string::npos || closed < opened);
}

}  // namespace

std::variant<ApiError, ChatPrompt> chat_prompt(ChatRequest request, const ServedModel& model) {
  if (model.tokenizer == nullptr || model.chat_template == nullptr ||
      !model.chat_template->exists()) {
    return bad_request(
        "the model has no chat template: send plain prompts to /v1/completions, or "
        "start the server with --chat-template",
        request.param, "no_chat_template");
  }
  ChatPrompt result;
  if (auto error = use_tools(request, model, result)) return *error;
  if (model.markup.tool_calls == text::ToolCallFormat::kMistral)
    shorten_call_ids(request.conversation.messages);
  if (!model.markup.takes_late_systems) move_late_systems(request.conversation.messages);
  model.chat_template->fit_contents(request.conversation.messages);
  const text::ChatPrompt prompt = model.chat_template->render(request.conversation);
  if (const auto* error = std::get_if<text::ChatError>(&prompt))
    return bad_request(shortened(error->message), request.param, std::string(code_of(error->kind)));
  const std::string& text = std::get<std::string>(prompt);
  result.ids = model.tokenizer->encode(text, request.add_special_tokens);
  if (result.ids.empty())
    return bad_request("the template makes an empty prompt of it", request.param);
  result.answer.has_reasoning = model.markup.has_reasoning;
  result.answer.starts_in_reasoning =
      model.markup.has_reasoning && starts_in_reasoning(request.conversation, text);
  return result;
}

std::optional<ApiError> set_prompt(ChatPrompt prompt, const ServedModel& model,
                                   GenerationPlan& plan) {
  plan.prompts.push_back({.ids = std::move(prompt.ids)});
  plan.answer = std::move(prompt.answer);
  std::vector<int32_t>& shown = plan.stops.shown_tokens;
  const text::AnswerMarkup& markup = model.markup;
  if (plan.answer.has_reasoning) shown = markup.reasoning_tokens;
  if (plan.answer.tool_calls != text::ToolCallFormat::kNone)
    shown.insert(shown.end(), markup.call_tokens.begin(), markup.call_tokens.end());
  if (plan.answer_format && !plan.answer.tools.empty()) {
    return bad_request(fmt::format("{} leaves no room for calls of tools: leave out the tools, or "
                                   "set tool_choice to none",
                                   plan.answer_format->param),
                       plan.answer_format->param, "invalid_value");
  }
  if (prompt.required_calls) plan.answer_format = std::move(prompt.required_calls);
  return check_format(plan);
}

}  // namespace encore::server
