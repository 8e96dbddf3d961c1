// Serves POST /v1/responses, OpenAI's Responses API. Nothing is stored, so each request must carry
// the whole conversation.
#pragma once

#include "server/api.h"

namespace encore::server {

const ParameterTable& response_parameters();
Prepared prepare_response(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
