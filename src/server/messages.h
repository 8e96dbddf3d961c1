// Serves POST /v1/messages of Anthropic's protocol, which generates the next message of a
// conversation.
#pragma once

#include "server/api.h"

namespace encore::server {

const ParameterTable& message_parameters();
Prepared prepare_message(const HttpRequest& request, const ApiContext& context);

// Serves POST /v1/messages/count_tokens, which returns the number of tokens in a conversation's
// prompt.
const ParameterTable& count_tokens_parameters();
Prepared prepare_count_tokens(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
