#include "passes/passes.h"
#include "passes/rewrite.h"

namespace encore::passes {
namespace {

using ir::Node;

// The split whose two outputs, in this order and for nothing else, silu_mul reads.
std::optional<int> split_of(const Rewrite& rewrite, const Node& silu_mul) {
  const auto split = rewrite.made_by(silu_mul.inputs[0], "split");
  if (!split || rewrite.node(*split).outputs != silu_mul.inputs) return std::nullopt;
  const bool is_own =
      rewrite.used_once(silu_mul.inputs[0]) && rewrite.used_once(silu_mul.inputs[1]);
  return is_own ? split : std::nullopt;
}

// The linear, with or without a prologue, that makes `value` for one reader.
std::optional<int> linear_of(const Rewrite& rewrite, ir::ValueId value) {
  if (!rewrite.used_once(value)) return std::nullopt;
  if (const auto linear = rewrite.made_by(value, "linear")) return linear;
  const auto linear = rewrite.made_by(value, "fused_linear");
  if (!linear) return std::nullopt;
  const Node& node = rewrite.node(*linear);
  const bool can_take = node.outputs.back() == value && node.attrs.find("epilogue") == nullptr;
  return can_take ? linear : std::nullopt;
}

}  // namespace

// The fused node stands where the linear stood.
void fuse_linear_epilogue(Program& program, const ir::OpSet& ops) {
  const ir::Op* fused = ops.find("fused_linear");
  if (fused == nullptr) return;
  Rewrite rewrite(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i) {
    if (!rewrite.is(i, "silu_mul")) continue;
    const auto split = split_of(rewrite, rewrite.node(i));
    if (!split) continue;
    const auto linear = linear_of(rewrite, rewrite.node(*split).inputs[0]);
    if (!linear) continue;
    Node node = rewrite.node(*linear);
    node.op = fused;
    node.outputs.back() = rewrite.node(i).outputs[0];
    node.attrs.set("epilogue", "silu_mul");
    if (!rewrite.fits(node)) continue;
    rewrite.replace(*linear, {node});
    rewrite.remove(*split);
    rewrite.remove(i);
  }
  rewrite.commit();
}

}  // namespace encore::passes
