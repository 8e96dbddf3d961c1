#include "server/request_id.h"

#include <algorithm>

#include "server/random_id.h"

namespace encore::server {

std::string request_id(std::string_view given) {
  constexpr size_t kLongest = 128;
  const bool is_printable =
      std::all_of(given.begin(), given.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (given.empty() || given.size() > kLongest || !is_printable) return random_id("req-");
  return std::string(given);
}

}  // namespace encore::server
