// Reads conversations in the form of requests of Anthropic's protocol.
#pragma once

#include <variant>

#include "server/chat_prompt.h"

namespace encore::server {

// Returns `own` followed by the parameters that define the prompt of a request to /v1/messages.
ParameterTable with_message_prompt_parameters(ParameterTable own);
// Reads the prompt of a request to /v1/messages: system, messages with their blocks, tools,
// tool_choice, thinking.
std::variant<ApiError, ChatRequest> read_message_request(const Parameters& parameters,
                                                         const ServedModel& model);

}  // namespace encore::server
