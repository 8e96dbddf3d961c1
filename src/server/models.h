// GET /v1/models, /v1/models/NAME, /version, and what routers ask: what is served.
#pragma once

#include "server/api.h"

namespace encore::server {

Prepared list_models(const HttpRequest& request, const ApiContext& context);
Prepared show_model(const HttpRequest& request, const ApiContext& context);
Prepared show_version(const HttpRequest& request, const ApiContext& context);
// May the key of the request use the adapter?
bool may_use_adapter(const HttpRequest& request, std::string_view adapter);
// The error for a key that may not use the adapter that the parameter `param` asks for.
ApiError not_allowed(std::string_view adapter, std::string_view param);
// Loads an adapter while the server serves, or takes its name away: as vLLM and SGLang do. Threads: any but
// the server's and the generator's, as files are read; one call at a time, as each changes what context.model lists.
Prepared load_adapter(const HttpRequest& request, const ApiContext& context,
                      engine::Generator& generator);
Prepared unload_adapter(const HttpRequest& request, const ApiContext& context,
                        engine::Generator& generator);
const ParameterTable& load_adapter_parameters();
const ParameterTable& unload_adapter_parameters();
// With the keys of SGLang, which routers look for.
Prepared show_model_info(const HttpRequest& request, const ApiContext& context);
Prepared show_server_info(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
