#include "backend/kernel.h"

#include <algorithm>

namespace encore {
namespace {

std::string describe(std::span<const TensorView> views) {
  std::string text;
  for (const TensorView& view : views) {
    if (!text.empty()) text += ", ";
    text += name(view.dtype);
    text += '[';
    for (int i = 0; i < view.shape.rank(); ++i) {
      if (i > 0) text += ',';
      text += std::to_string(view.shape[i]);
    }
    text += ']';
  }
  return text;
}

}  // namespace

const Kernel& KernelTable::choose(std::string_view op, const KernelArgs& args) const {
  for (const Kernel& kernel : rows_) {
    if (kernel.op == op && (kernel.accepts == nullptr || kernel.accepts(args))) return kernel;
  }
  const bool known = std::any_of(rows_.begin(), rows_.end(),
                                 [&](const Kernel& kernel) { return kernel.op == op; });
  fail(ErrorKind::kUnsupported, "op '{}': {} for ({}) -> ({})", op,
       known ? "no kernel on this device accepts" : "this device has no kernel at all, asked",
       describe(args.inputs), describe(args.outputs));
}

}  // namespace encore
