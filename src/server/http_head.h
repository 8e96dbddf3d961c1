// Checks a request's head for RFC 9112's rules beyond the grammar, which the parser checks: where
// the body ends, and whom the request is for.
#pragma once

#include <optional>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"

namespace encore::server {

// Returns an error if one cannot be sure where the body of a request with these headers ends, so
// that the bytes behind the head may not be read as the next request. Stricter than the RFC: one
// Content-Length of digits alone, or one Transfer-Encoding of `chunked` alone. `version`: 10 or 11.
std::optional<ApiError> check_framing(const Headers& headers, unsigned version);

// Sets path and query of a request by its target, which may be a URL of the host in its headers.
// Returns an error if there is no such target, or not exactly one host where the version asks for
// one. Source: RFC 9112, 3.2.
std::optional<ApiError> set_target(std::string_view target, unsigned version, HttpRequest& request);

}  // namespace encore::server
