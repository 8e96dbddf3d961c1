// A hash of text that is the same on every run and machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace encore {

// FNV-1a, 64 bits.
constexpr uint64_t hash(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325U;
  for (const char c : text)
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return value;
}

}  // namespace encore
