// Serves POST /tokenize and /detokenize, which convert between text and token ids.
#pragma once

#include "server/api.h"

namespace encore::server {

const ParameterTable& tokenize_parameters();
Prepared prepare_tokenize(const HttpRequest& request, const ApiContext& context);

const ParameterTable& detokenize_parameters();
Prepared prepare_detokenize(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
