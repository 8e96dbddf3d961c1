#include "backend/fused_attention.h"

namespace encore {

Parts attention_parts(const KernelArgs& args) {
  const auto inputs = [&](size_t first, size_t last) {
    const auto begin = args.inputs.begin();
    return std::vector<TensorView>(begin + static_cast<std::ptrdiff_t>(first),
                                   begin + static_cast<std::ptrdiff_t>(last));
  };
  constexpr size_t kPageTable = 8;
  constexpr size_t kNorms = 11;
  Parts result;
  std::vector<TensorView> to_write = inputs(0, kPageTable);
  const std::vector<TensorView> norms = inputs(kNorms, args.inputs.size());
  to_write.insert(to_write.end(), norms.begin(), norms.end());
  KernelArgs& write = result.add(args, "rope_kv_write", std::move(to_write), args.outputs);
  if (!norms.empty()) write.attrs.set("eps", args.attrs.get_double("eps"));

  std::vector<TensorView> to_read = args.outputs;  // queries, keys and values
  const std::vector<TensorView> lengths = inputs(kPageTable, kNorms);
  to_read.insert(to_read.end(), lengths.begin(), lengths.end());
  KernelArgs& attend = result.add(args, "attention", std::move(to_read), {args.outputs[0]});
  attend.attrs.set("scale", args.attrs.get_double("scale"));
  return result;
}

}  // namespace encore
