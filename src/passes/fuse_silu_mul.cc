#include "passes/passes.h"
#include "passes/rewrite.h"

namespace encore::passes {
namespace {

// Tries %mul = mul(..) with its input `gate` as silu's output, the other one as `up`.
bool fuse(Rewrite& rewrite, const ir::Op& fused, int mul, int gate) {
  const ir::Node& product = rewrite.node(mul);
  const ir::ValueId activated = product.inputs[gate];
  const auto silu = rewrite.made_by(activated, "silu");
  if (!silu || !rewrite.used_once(activated)) return false;
  const ir::Node node{
      &fused, {rewrite.node(*silu).inputs[0], product.inputs[1 - gate]}, product.outputs, {}, {}};
  if (!rewrite.fits(node)) return false;
  rewrite.remove(*silu);
  rewrite.replace(mul, {node});
  return true;
}

}  // namespace

void fuse_silu_mul(Program& program, const ir::OpSet& ops) {
  const ir::Op* fused = ops.find("silu_mul");
  if (fused == nullptr) return;
  Rewrite rewrite(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i) {
    if (!rewrite.is(i, "mul")) continue;
    if (!fuse(rewrite, *fused, i, 0)) fuse(rewrite, *fused, i, 1);
  }
  rewrite.commit();
}

}  // namespace encore::passes
