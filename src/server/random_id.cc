#include "server/random_id.h"

#include <cstdint>
#include <random>

#include <fmt/format.h>

namespace encore::server {

std::string random_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  const uint64_t high = random();
  return fmt::format("{}{:016x}{:016x}", prefix, high, random());
}

}  // namespace encore::server
