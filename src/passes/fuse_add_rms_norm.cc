#include "passes/passes.h"
#include "passes/rewrite.h"

namespace encore::passes {

// The fused node stands where the sum was made, before the sum's other readers; of several norms of
// one sum the first is taken.
void fuse_add_rms_norm(Program& program, const ir::OpSet& ops) {
  const ir::Op* fused = ops.find("add_rms_norm");
  if (fused == nullptr) return;
  Rewrite rewrite(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i) {
    if (!rewrite.is(i, "rms_norm")) continue;
    const ir::Node& norm = rewrite.node(i);
    const ir::ValueId sum = norm.inputs[0];
    const auto add = rewrite.made_by(sum, "add");
    if (!add) continue;
    const ir::Node& operands = rewrite.node(*add);
    const ir::Node node{fused,
                        {operands.inputs[0], operands.inputs[1], norm.inputs[1]},
                        {sum, norm.outputs[0]},
                        norm.attrs,
                        {}};
    if (!rewrite.fits(node) || !rewrite.can_stand_at(*add, node)) continue;
    rewrite.replace(*add, {node});
    rewrite.remove(i);
  }
  rewrite.commit();
}

}  // namespace encore::passes
