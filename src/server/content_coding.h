// Bodies that clients have compressed.
#pragma once

#include <cstdint>
#include <optional>

#include "server/api_error.h"
#include "server/http.h"

namespace encore::server {

// Takes the Content-Encoding gzip off a request's body, whose text may have `max_bytes`. Threads:
// any; it takes time. Errors: 415 for another coding, 413 for more text, 400 for what is not gzip.
std::optional<ApiError> decode_body(HttpRequest& request, uint64_t max_bytes);

}  // namespace encore::server
