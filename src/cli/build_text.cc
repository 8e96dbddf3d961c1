#include <fmt/format.h>

#include "cli/build_info.h"

namespace encore::cli {

std::string build_text() {
  const BuildInfo& info = build_info();
  const bool has_cuda = info.cuda != "none";
  return fmt::format(
      "encore {}\ncommit {}\nbuild {}\nCUDA {}", info.version, info.commit, info.build,
      has_cuda ? fmt::format("{}, architectures {}", info.cuda, info.architectures) : "none");
}

}  // namespace encore::cli
