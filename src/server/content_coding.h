// Decompresses request bodies.
#pragma once

#include <cstdint>
#include <optional>

#include "server/api_error.h"
#include "server/http.h"

namespace encore::server {

// Decompresses the request's body if its Content-Encoding is gzip. The decompressed text may have
// at most `max_bytes` bytes. Takes time in proportion to the size of the decompressed text.
// Threads: any. Errors: 415 for another coding, 413 for a text that is too long, 400 for invalid
// gzip data.
std::optional<ApiError> decode_body(HttpRequest& request, uint64_t max_bytes);

}  // namespace encore::server
