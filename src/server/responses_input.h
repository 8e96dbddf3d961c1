// Reads conversations in the form of requests of OpenAI's Responses API.
#pragma once

#include <variant>

#include "server/chat_prompt.h"

namespace encore::server {

// Returns `own` followed by the parameters that define the prompt of a request to /v1/responses.
ParameterTable with_response_prompt_parameters(ParameterTable own);
// Reads the prompt of a request to /v1/responses: instructions, input as text or items, tools,
// tool_choice, reasoning.
std::variant<ApiError, ChatRequest> read_response_request(const Parameters& parameters,
                                                          const ServedModel& model);

}  // namespace encore::server
