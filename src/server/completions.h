// POST /v1/completions: text that goes on from prompts.
#pragma once

#include "server/api.h"

namespace encore::server {

const ParameterTable& completion_parameters();
Prepared prepare_completion(const HttpRequest& request, const ApiContext& context);

// GET /health_generate: one token, to see that the engine gives some.
Prepared prepare_health_check(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
