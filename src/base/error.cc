#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace encore {

std::string_view name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kModel:
      return "model";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kCompile:
      return "compile";
    case ErrorKind::kMemory:
      return "memory";
    case ErrorKind::kDevice:
      return "device";
  }
  return "unknown";
}

int exit_code(ErrorKind kind) {
  return 2 + static_cast<int>(kind);
}

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  fmt::print(stderr, "{}:{}: broken invariant: {}{}{}\n", file, line, condition,
             message.empty() ? "" : ": ", message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace encore
