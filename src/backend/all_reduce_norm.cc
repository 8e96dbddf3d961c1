#include "backend/all_reduce_norm.h"

namespace encore {

Parts all_reduce_norm_parts(const KernelArgs& args) {
  const TensorView& sum = args.outputs["sum"];
  Parts parts;
  KernelArgs& reduce = parts.add(args, "all_reduce", {{"x", args.inputs["x"]}}, {{"y", sum}});
  pass_on(args.attrs, {"of"}, reduce.attrs);
  Views inputs{{"x", sum}};
  inputs.add("residual", args.inputs["residual"], true);
  inputs.add("weight", args.inputs["weight"], false);
  Views outputs;
  outputs.add("sum", sum, true);
  outputs.add("y", args.outputs["y"], false);
  KernelArgs& norm = parts.add(args, "rms_norm", std::move(inputs), std::move(outputs));
  pass_on(args.attrs, {"eps", "offset"}, norm.attrs);
  return parts;
}

}  // namespace encore
