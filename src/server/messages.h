// POST /v1/messages: the next message of a conversation, in Anthropic's protocol.
#pragma once

#include "server/api.h"

namespace encore::server {

const ParameterTable& message_parameters();
Prepared prepare_message(const HttpRequest& request, const ApiContext& context);

// POST /v1/messages/count_tokens: how long the prompt of a conversation is.
const ParameterTable& count_tokens_parameters();
Prepared prepare_count_tokens(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
