// Identifies the sources from which the build made the kernels.
#pragma once

#include <string_view>

namespace encore::cuda {

// A hash that the build makes (hash_sources.cmake) of the sources of this backend, the sources that
// bind and measure its kernels, and the compilers with their flags.
extern const std::string_view kSourceHash;

}  // namespace encore::cuda
