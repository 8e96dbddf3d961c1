#include "loader/memory_plan.h"

namespace encore::loader {

MemoryPlan memory_plan(LoadedModel& model) {
  const runtime::LoadedProgram& loaded = model.executor().loaded();
  const passes::Program& program = loaded.program;
  MemoryPlan plan;
  plan.context = model.context_bytes();
  for (const ir::ValueId weight : program.graph.values_of_kind(ir::ValueKind::kWeight))
    plan.weights += program.graph.value(weight).type.num_bytes({});
  plan.arena = program.arena.bytes;
  plan.arena_without_reuse = program.arena.unshared_bytes;
  plan.step_inputs = loaded.inputs.bytes() + loaded.persistent.bytes();
  plan.scratch = loaded.workspace_bytes();
  plan.libraries = loaded.recordings.stats().library_bytes;
  plan.recordings = loaded.recordings.stats().bytes;
  plan.prompt_scores = model.prompt_score_bytes();
  plan.halves = model.half_bytes();
  plan.kv = loaded.kv.mapped_bytes();
  return plan;
}

}  // namespace encore::loader
