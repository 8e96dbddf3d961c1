#include "backend/tracer.h"

#include "base/error.h"

namespace encore {

std::string_view name(TraceKind kind) {
  switch (kind) {
    case TraceKind::kKernel:
      return "kernel";
    case TraceKind::kCopy:
      return "copy";
    case TraceKind::kFill:
      return "fill";
    case TraceKind::kReplay:
      return "replay";
    case TraceKind::kLaunchCall:
      return "launch call";
    case TraceKind::kCopyCall:
      return "copy call";
    case TraceKind::kAllocateCall:
      return "allocate call";
    case TraceKind::kWaitCall:
      return "wait call";
    case TraceKind::kOtherCall:
      return "other call";
  }
  ENCORE_CHECK(false, "no such kind of span");
}

}  // namespace encore
