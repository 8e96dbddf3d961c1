// Says how this executable was built; CMake writes the function.
#pragma once

#include <string>

#include "base/build_info.h"

namespace encore::cli {

const BuildInfo& build_info();
// "encore 0.1.0" and a line each for the commit, the build and CUDA.
std::string build_text();

}  // namespace encore::cli
