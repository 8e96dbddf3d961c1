#pragma once

#include <cstdlib>
#include <string_view>

namespace encore {

// Off with ENCORE_CONFORMANCE=quick, for tools that slow code down ten- or a thousandfold: tests that
// try many cases of one kind then try a few small ones.
inline bool is_thorough() {
  const char* const wanted = std::getenv("ENCORE_CONFORMANCE");
  return wanted == nullptr || std::string_view(wanted) != "quick";
}

}  // namespace encore
