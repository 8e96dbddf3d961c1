// Makes random ids for answers, tool calls and requests, so long that no two are equal in practice.
#pragma once

#include <string>
#include <string_view>

namespace encore::server {

// Returns `prefix`, such as "chatcmpl-", followed by random digits. Threads: any.
std::string random_id(std::string_view prefix);

}  // namespace encore::server
