#include "backend/kernel.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace encore {
namespace {

std::string describe(const Views& views) {
  std::string text;
  for (size_t i = 0; i < views.size(); ++i) {
    const TensorView& view = views.values()[i];
    text += fmt::format("{}{} {}[{}]", i == 0 ? "" : ", ", views.name(i), name(view.dtype),
                        fmt::join(view.shape, ","));
  }
  return text;
}

}  // namespace

std::string meeting_text(std::string_view op, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  return fmt::format("op '{}' of {} ({}[{},{}])", op, args.attrs.get_string("of"), name(x.dtype),
                     x.num_rows(), x.row_elements());
}

bool Kernel::takes(std::string_view wanted, const KernelArgs& args) const {
  if (op != wanted) return false;
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    const bool is_known =
        !args.inputs.is_optional(i) || std::ranges::count(optional, args.inputs.name(i)) > 0;
    if (!is_known) return false;
  }
  return accepts == nullptr || accepts(args);
}

const Kernel& KernelTable::choose(std::string_view op, const KernelArgs& args) const {
  for (const Kernel& kernel : rows_) {
    if (kernel.takes(op, args)) return kernel;
  }
  const bool known = std::ranges::count(rows_, op, &Kernel::op) > 0;
  fail(ErrorKind::kUnsupported, "op '{}': {} for ({}) -> ({})", op,
       known ? "no kernel on this device accepts" : "this device has no kernel at all, asked",
       describe(args.inputs), describe(args.outputs));
}

}  // namespace encore
