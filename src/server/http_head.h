// Checks those rules of RFC 9112 for a request's head that the HTTP parser does not check: the
// headers must say unambiguously where the body ends, and which host the request is for.
#pragma once

#include <optional>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"

namespace encore::server {

// Returns an error if the headers do not say unambiguously where the body ends. Without such a
// check, a part of the body could be read as the next request (request smuggling). The rules are
// stricter than the RFC's: either one Content-Length that consists of digits, or one
// Transfer-Encoding that is `chunked` alone. `version` is 10 or 11, for HTTP/1.0 or 1.1.
std::optional<ApiError> check_framing(const Headers& headers, unsigned version);

// Sets the request's path and query from the target in its request line. The target may be a URL,
// whose host must be the one in the headers. Returns an error if the target is not valid, or if the
// request lacks the one Host header that its version demands. Source: RFC 9112, 3.2.
std::optional<ApiError> set_target(std::string_view target, unsigned version, HttpRequest& request);

}  // namespace encore::server
