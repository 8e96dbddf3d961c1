// Turns a conversation, which any of the protocols may have brought, into the tokens of a prompt.
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

// A conversation, and the tools that the model may call in its answer.
struct ChatRequest {
  // The messages, in the form of OpenAI's chat API. The tools are not in here but in `tools`.
  text::Conversation conversation;
  ToolUse tools;
  // Says whether the tokenizer adds its special tokens to the rendered text.
  bool add_special_tokens = false;
  std::string param = "messages";  // the request's parameter that holds the conversation
};

// The tokens of a prompt, and the rules by which the answer is split into reasoning, content and
// calls.
struct ChatPrompt {
  std::vector<int32_t> ids;
  text::AnswerRules answer;
  std::optional<AnswerFormat> required_calls;  // set if the answer must consist of tool calls
};

// Renders the conversation with the chat template and tokenizes the text. Errors in the
// conversation or in the tools name the request's parameter.
std::variant<ApiError, ChatPrompt> chat_prompt(ChatRequest request, const ServedModel& model);
// Moves the prompt, and the rules by which its answer is split, into `plan`. Returns an error if
// the request combines tools with an answer format, or if the answer format of `plan` is
// incompatible with its other members.
std::optional<ApiError> set_prompt(ChatPrompt prompt, const ServedModel& model,
                                   GenerationPlan& plan);

// Returns `own` followed by the parameters that define the prompt of a chat request.
ParameterTable with_chat_prompt_parameters(ParameterTable own);
// Reads the parameters that with_chat_prompt_parameters() adds.
std::variant<ApiError, ChatRequest> read_chat_request(const Parameters& parameters,
                                                      const ServedModel& model);

}  // namespace encore::server
