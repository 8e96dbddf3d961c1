// Gives tests the time at which they render templates.
#pragma once

#include <chrono>
#include <ctime>

namespace encore::text {

// Returns the local time 2026-01-02 03:04:05.678901, which tools/chat_templates.py uses too.
inline std::chrono::system_clock::time_point fixed_time() {
  std::tm local{};
  local.tm_year = 126;
  local.tm_mday = 2;
  local.tm_hour = 3;
  local.tm_min = 4;
  local.tm_sec = 5;
  local.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&local)) +
         std::chrono::microseconds(678901);
}

}  // namespace encore::text
