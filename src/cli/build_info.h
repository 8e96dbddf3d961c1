// Describes how this executable was built. CMake generates build_info().
#pragma once

#include <string>

#include "base/build_info.h"

namespace encore::cli {

const BuildInfo& build_info();
// Returns "encore 0.1.0" and one line each for the commit, the build and CUDA.
std::string build_text();

}  // namespace encore::cli
