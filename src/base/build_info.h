// Describes how a binary was built: its version, commit, compiler, and CUDA.
#pragma once

#include <string>

namespace encore {

struct BuildInfo {
  std::string version;  // "0.1.0"
  std::string commit;   // "364b5a1", with "+changes" where files differed; "unknown" without git
  std::string build;    // "Release, GNU 12.2.0"
  std::string cuda;     // "13.0"; "none" where the binary has no CUDA backend
  std::string architectures;  // "90a"; "none"
};

}  // namespace encore
