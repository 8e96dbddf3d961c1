#pragma once

#include <cstdlib>
#include <string_view>

namespace encore {

// Returns whether tests that try many cases of one kind try all of them. It is false where
// ENCORE_CONFORMANCE=quick, which is for tools that slow code down ten- or a thousandfold; these
// tests then try a few small cases.
inline bool is_thorough() {
  const char* const wanted = std::getenv("ENCORE_CONFORMANCE");
  return wanted == nullptr || std::string_view(wanted) != "quick";
}

}  // namespace encore
