#include "passes/passes.h"
#include "passes/rewrite.h"

namespace encore::passes {
namespace {

using ir::Node;

// `linear` with `norm` in front. The norm's attributes and outputs come first: an addition's sum
// stays an output.
Node with_prologue(const ir::Op& fused, const Node& norm, const Node& linear) {
  Node node{&fused, norm.inputs, norm.outputs, {}, {}};
  node.inputs.insert(node.inputs.end(), linear.inputs.begin() + 1, linear.inputs.end());
  node.outputs.back() = linear.outputs[0];
  node.attrs.set("prologue", norm.op->name);
  for (const ir::Attrs* attrs : {&norm.attrs, &linear.attrs}) {
    for (const auto& [name, value] : *attrs)
      node.attrs.set(name, value);
  }
  return node;
}

}  // namespace

// The fused node stands where the linear stood.
void fuse_linear_prologue(Program& program, const ir::OpSet& ops) {
  const ir::Op* fused = ops.find("fused_linear");
  if (fused == nullptr) return;
  Rewrite rewrite(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i) {
    if (!rewrite.is(i, "linear")) continue;
    const ir::ValueId x = rewrite.node(i).inputs[0];
    if (!rewrite.used_once(x)) continue;
    auto norm = rewrite.made_by(x, "rms_norm");
    if (!norm) norm = rewrite.made_by(x, "add_rms_norm");
    // The linear of a sum has nothing in front that could go.
    if (!norm || rewrite.node(*norm).outputs.back() != x) continue;
    const Node node = with_prologue(*fused, rewrite.node(*norm), rewrite.node(i));
    if (!rewrite.fits(node) || !rewrite.can_stand_at(i, node)) continue;
    rewrite.remove(*norm);
    rewrite.replace(i, {node});
  }
  rewrite.commit();
}

}  // namespace encore::passes
