// Turns a conversation, in whichever protocol it came, into the tokens of a prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/generation.h"
#include "server/parameters.h"
#include "server/served_model.h"
#include "server/tools.h"

namespace encore::server {

// A conversation and what the model may call.
struct ChatRequest {
  // Messages as the chat API has them; the tools are in `tools`.
  text::Conversation conversation;
  ToolUse tools;
  bool add_special_tokens = false;  // the tokenizer's, around what the template gives
  std::string param = "messages";   // the parameter that has the conversation
};

// The prompt, and what the answer to it is divided into.
struct ChatPrompt {
  std::vector<int32_t> ids;
  text::AnswerRules answer;
  std::optional<AnswerFormat> required_calls;  // that the answer is
};

// Renders and encodes a request. Errors of the conversation and its tools name the parameter.
std::variant<ApiError, ChatPrompt> chat_prompt(ChatRequest request, const ServedModel& model);
// Gives the plan its prompt and what belongs to it. Returns an error for tools beside a format, or
// where a format leaves no room for the rest.
std::optional<ApiError> set_prompt(ChatPrompt prompt, const ServedModel& model,
                                   GenerationPlan& plan);

// Rows of the parameters that a prompt of the chat API is made of, `own` in front.
ParameterTable with_chat_prompt_parameters(ParameterTable own);
// Reads those parameters.
std::variant<ApiError, ChatRequest> read_chat_request(const Parameters& parameters,
                                                      const ServedModel& model);

}  // namespace encore::server
