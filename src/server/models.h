// Serves GET /v1/models, /v1/models/NAME, /version and the routes that routers read: they say what
// is served.
#pragma once

#include "server/api.h"

namespace encore::server {

Prepared list_models(const HttpRequest& request, const ApiContext& context);
Prepared show_model(const HttpRequest& request, const ApiContext& context);
Prepared show_version(const HttpRequest& request, const ApiContext& context);
// Returns whether the request's API key may use the adapter.
bool may_use_adapter(const HttpRequest& request, std::string_view adapter);
// Returns the error for a key that may not use the adapter, which the parameter `param` names.
ApiError not_allowed(std::string_view adapter, std::string_view param);
// Loads or unloads an adapter while the server runs, with the routes and parameters of vLLM and
// SGLang. Threads: any except the server's and the generator's, because files are read. Only one
// call at a time, because each call changes the adapters of context.model.
Prepared load_adapter(const HttpRequest& request, const ApiContext& context,
                      engine::Generator& generator);
Prepared unload_adapter(const HttpRequest& request, const ApiContext& context,
                        engine::Generator& generator);
const ParameterTable& load_adapter_parameters();
const ParameterTable& unload_adapter_parameters();
// These two handlers describe the model and the server with the keys of SGLang's routes, which
// routers read.
Prepared show_model_info(const HttpRequest& request, const ApiContext& context);
Prepared show_server_info(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
