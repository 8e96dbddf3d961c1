// Serves POST /v1/completions, which continues prompts.
#pragma once

#include "server/api.h"

namespace encore::server {

const ParameterTable& completion_parameters();
Prepared prepare_completion(const HttpRequest& request, const ApiContext& context);

// Serves GET /health_generate, which generates one token to show that the engine works.
Prepared prepare_health_check(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
