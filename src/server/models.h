// GET /v1/models, /v1/models/NAME, /version, and what routers ask: what is served.
#pragma once

#include "server/api.h"

namespace encore::server {

Prepared list_models(const HttpRequest& request, const ApiContext& context);
Prepared show_model(const HttpRequest& request, const ApiContext& context);
Prepared show_version(const HttpRequest& request, const ApiContext& context);
// With the keys of SGLang, which routers look for.
Prepared show_model_info(const HttpRequest& request, const ApiContext& context);
Prepared show_server_info(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
