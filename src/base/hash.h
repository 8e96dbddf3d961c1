// Hashes text. The hash is the same on every run and machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace encore {

// Returns the 64-bit FNV-1a hash of the text.
constexpr uint64_t hash(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325U;
  for (const char c : text)
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return value;
}

}  // namespace encore
