// Conversations of Anthropic's protocol, as requests have them.
#pragma once

#include <variant>

#include "server/chat_prompt.h"

namespace encore::server {

// Rows of the parameters that a prompt is made of, `own` in front.
ParameterTable with_message_prompt_parameters(ParameterTable own);
// Reads the prompt of a request: system, messages with their blocks, tools, tool_choice, thinking.
std::variant<ApiError, ChatRequest> read_message_request(const Parameters& parameters,
                                                         const ServedModel& model);

}  // namespace encore::server
