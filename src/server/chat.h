// Serves POST /v1/chat/completions, which generates the next message of a conversation.
#pragma once

#include "server/api.h"

namespace encore::server {

const ParameterTable& chat_parameters();
Prepared prepare_chat(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
