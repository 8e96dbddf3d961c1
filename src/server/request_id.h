// Names a request in its answer and in logs.
#pragma once

#include <string>
#include <string_view>

namespace encore::server {

// The id that a client gave in X-Request-Id, where it has 1 to 128 characters of printable ASCII; a
// fresh one otherwise.
std::string request_id(std::string_view given);

}  // namespace encore::server
