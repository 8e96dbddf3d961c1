// Conversations of OpenAI's Responses API, as requests have them.
#pragma once

#include <variant>

#include "server/chat_prompt.h"

namespace encore::server {

// Rows of the parameters that a prompt is made of, `own` in front.
ParameterTable with_response_prompt_parameters(ParameterTable own);
// Reads the prompt of a request: instructions, input as text or items, tools, tool_choice,
// reasoning.
std::variant<ApiError, ChatRequest> read_response_request(const Parameters& parameters,
                                                          const ServedModel& model);

}  // namespace encore::server
