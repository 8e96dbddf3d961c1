// Names that no other answer, call or request has.
#pragma once

#include <string>
#include <string_view>

namespace encore::server {

// "chatcmpl-" and random digits, for the prefix "chatcmpl-". Threads: any.
std::string random_id(std::string_view prefix);

}  // namespace encore::server
