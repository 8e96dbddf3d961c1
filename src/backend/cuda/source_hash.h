// Identifies the sources that the build made the kernels from.
#pragma once

#include <string_view>

namespace encore::cuda {

// A hash of the sources of this backend, of what binds and measures its kernels, and of compilers
// and their flags, made by the build (hash_sources.cmake).
extern const std::string_view kSourceHash;

}  // namespace encore::cuda
