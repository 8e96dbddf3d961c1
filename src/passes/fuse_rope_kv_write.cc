#include "passes/passes.h"
#include "passes/rewrite.h"

namespace encore::passes {
namespace {

using ir::Node;
using ir::ValueId;

// The rope whose output an attention over this new cache takes as its queries.
std::optional<int> rope_of_queries(const Rewrite& rewrite, ValueId k_cache) {
  for (const ir::NodeId reader : rewrite.readers(k_cache)) {
    const Node& node = rewrite.node(reader.index);
    if (node.op->name != "attention") continue;
    if (const auto rope = rewrite.made_by(node.inputs[0], "rope")) return rope;
  }
  return std::nullopt;
}

// The norm per head in front of a rope, when only that rope reads it.
std::optional<int> head_norm(const Rewrite& rewrite, ValueId rope_input) {
  if (!rewrite.used_once(rope_input)) return std::nullopt;
  return rewrite.made_by(rope_input, "rms_norm");
}

struct Match {
  int q_rope = 0;
  int k_rope = 0;
  int write = 0;
};

Node fused_node(const Rewrite& rewrite, const ir::Op& op, const Match& match) {
  const Node& q = rewrite.node(match.q_rope);
  const Node& k = rewrite.node(match.k_rope);
  const Node& write = rewrite.node(match.write);
  return {&op,
          {q.inputs[0], k.inputs[0], write.inputs[3], q.inputs[1], q.inputs[2], write.inputs[4],
           write.inputs[0], write.inputs[1]},
          {q.outputs[0], write.outputs[0], write.outputs[1]},
          {},
          {}};
}

bool commit_if_legal(Rewrite& rewrite, const Match& match, const Node& node,
                     const std::vector<int>& norms) {
  if (!rewrite.fits(node) || !rewrite.can_stand_at(match.write, node)) return false;
  rewrite.remove(match.q_rope);
  rewrite.remove(match.k_rope);
  for (const int norm : norms)
    rewrite.remove(norm);
  rewrite.replace(match.write, {node});
  return true;
}

void fuse(Rewrite& rewrite, const ir::Op& op, int write) {
  const ValueId k = rewrite.node(write).inputs[2];
  const auto k_rope = rewrite.made_by(k, "rope");
  if (!k_rope || !rewrite.used_once(k)) return;
  const auto q_rope = rope_of_queries(rewrite, rewrite.node(write).outputs[0]);
  if (!q_rope) return;
  const Node& q_node = rewrite.node(*q_rope);
  const Node& k_node = rewrite.node(*k_rope);
  if (q_node.inputs[1] != k_node.inputs[1] || q_node.inputs[2] != k_node.inputs[2]) return;

  const Match match{*q_rope, *k_rope, write};
  const Node plain = fused_node(rewrite, op, match);
  const auto q_norm = head_norm(rewrite, q_node.inputs[0]);
  const auto k_norm = head_norm(rewrite, k_node.inputs[0]);
  if (q_norm && k_norm && rewrite.node(*q_norm).attrs == rewrite.node(*k_norm).attrs) {
    Node normed = plain;
    normed.inputs[0] = rewrite.node(*q_norm).inputs[0];
    normed.inputs[1] = rewrite.node(*k_norm).inputs[0];
    normed.inputs.push_back(rewrite.node(*q_norm).inputs[1]);
    normed.inputs.push_back(rewrite.node(*k_norm).inputs[1]);
    normed.attrs = rewrite.node(*q_norm).attrs;
    if (commit_if_legal(rewrite, match, normed, {*q_norm, *k_norm})) return;
  }
  commit_if_legal(rewrite, match, plain, {});
}

}  // namespace

// The fused node stands where the cache was written. Norms that cannot be taken in (one of two,
// other eps, a whole row) stay in front of it.
void fuse_rope_kv_write(Program& program, const ir::OpSet& ops) {
  const ir::Op* fused = ops.find("rope_kv_write");
  if (fused == nullptr) return;
  Rewrite rewrite(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i) {
    if (rewrite.is(i, "kv_write")) fuse(rewrite, *fused, i);
  }
  rewrite.commit();
}

}  // namespace encore::passes
