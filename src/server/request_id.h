// Chooses the id that names a request in its answer and in logs.
#pragma once

#include <string>
#include <string_view>

namespace encore::server {

// Returns the client's id from X-Request-Id if it consists of 1 to 128 printable ASCII characters,
// and a new random id otherwise.
std::string request_id(std::string_view given);

}  // namespace encore::server
