#include "backend/fused_route.h"

#include "base/rounding.h"

namespace encore {

Parts route_parts(const KernelArgs& args) {
  constexpr int64_t kAlignment = 256;
  const Views& in = args.inputs;
  const TensorView& y = args.outputs["y"];
  const TensorView logits(args.scratch, DType::kF32, {y.num_rows(), in["weight"].num_rows()});
  Parts result;
  KernelArgs& norm = result.add(
      args, "rms_norm", {{"x", in["x"]}, {"residual", in.find("residual")}, {"weight", in["norm"]}},
      {{"sum", args.outputs.find("sum")}, {"y", y}});
  pass_on(args.attrs, {"eps", "offset"}, norm.attrs);
  KernelArgs& product =
      result.add(args, "linear", {{"x", y}, {"weight", in["weight"]}}, {{"y", logits}});
  pass_on(args.attrs, {"out"}, product.attrs);
  KernelArgs& route =
      result.add(args, "route",
                 {{"logits", logits},
                  {"bias", in.find("bias")},
                  {"live", in["live"]},
                  {"step_clock", in.find("step_clock")},
                  {"shares", in.find("shares")}},
                 {{"experts", args.outputs["experts"]}, {"weights", args.outputs["weights"]}});
  pass_on(args.attrs,
          {"top_k", "renormalize", "least", "score", "groups", "groups_kept", "factor", "drawn"},
          route.attrs);
  result.between_bytes = round_up(logits.num_bytes(), kAlignment);
  for (Parts::Part& part : result.parts)
    part.args.scratch = static_cast<std::byte*>(args.scratch) + result.between_bytes;
  return result;
}

}  // namespace encore
