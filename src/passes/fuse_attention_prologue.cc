#include "passes/passes.h"
#include "passes/rewrite.h"

namespace encore::passes {
namespace {

using ir::Node;
using ir::ValueId;

// Does `attention` take exactly what `write` gives, and nobody else any of it?
bool reads_alone(const Rewrite& rewrite, const Node& write, const Node& attention) {
  for (size_t i = 0; i < write.outputs.size(); ++i) {
    if (attention.inputs[i] != write.outputs[i]) return false;
    if (!rewrite.used_once(write.outputs[i])) return false;
  }
  return true;
}

// What is written, then which pages hold it, then the norms.
Node fused_node(const ir::Op& op, const Node& write, const Node& attention) {
  constexpr std::ptrdiff_t kNorms = 8;
  Node node{&op,
            {write.inputs.begin(), write.inputs.begin() + kNorms},
            {attention.outputs[0], write.outputs[1], write.outputs[2]},
            attention.attrs,
            {}};
  node.inputs.insert(node.inputs.end(), attention.inputs.begin() + 3, attention.inputs.end());
  node.inputs.insert(node.inputs.end(), write.inputs.begin() + kNorms, write.inputs.end());
  for (const auto& [name, value] : write.attrs)
    node.attrs.set(name, value);
  return node;
}

}  // namespace

// The fused node stands where attention stood.
void fuse_attention_prologue(Program& program, const ir::OpSet& ops) {
  const ir::Op* fused = ops.find("fused_attention");
  if (fused == nullptr) return;
  Rewrite rewrite(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i) {
    if (!rewrite.is(i, "attention")) continue;
    const auto write = rewrite.made_by(rewrite.node(i).inputs[0], "rope_kv_write");
    if (!write || !reads_alone(rewrite, rewrite.node(*write), rewrite.node(i))) continue;
    const Node node = fused_node(*fused, rewrite.node(*write), rewrite.node(i));
    if (!rewrite.fits(node)) continue;
    rewrite.remove(*write);
    rewrite.replace(i, {node});
  }
  rewrite.commit();
}

}  // namespace encore::passes
