// Where every value of a program lives: one arena for what nodes make, and what others own.
#pragma once

#include <vector>

#include "backend/device.h"
#include "passes/program.h"
#include "runtime/kv_memory.h"
#include "runtime/lower.h"
#include "runtime/persistent_buffers.h"
#include "runtime/step_inputs.h"

namespace encore::runtime {

// Where a value that a node makes lies: in the arena as planned, or in the input, weight or state
// that it is a view of or written over, for which `others` is asked.
TensorView node_view(const passes::Program& program, ir::ValueId id, const ir::Sizes& sizes,
                     std::byte* arena, const Addresses& others);

// Lifetime: refers to the program, the step inputs, KV memory and the persistent buffers.
class AddressMap : public Addresses {
 public:
  // `weights` by ValueId::index. Allocates the arena. Errors: kMemory.
  AddressMap(Device& device, const passes::Program& program, std::vector<TensorView> weights,
             const StepInputs& inputs, const KvMemory& kv_memory,
             const PersistentBuffers& persistent);

  // Sets memory aside that launches share, counters at zero. Errors: kMemory.
  void set_workspace(Device& device, Stream& stream, const Workspace& workspace);

  [[nodiscard]] TensorView view(ir::ValueId id, const ir::Sizes& sizes) const override;
  [[nodiscard]] void* scratch(int64_t bytes) const override;
  [[nodiscard]] uint32_t* counters(int64_t count) const override;

  [[nodiscard]] const Memory& arena() const { return arena_; }
  [[nodiscard]] const Memory& scratch() const { return scratch_; }
  [[nodiscard]] int64_t workspace_bytes() const { return scratch_.bytes() + counters_.bytes(); }

 private:
  const passes::Program& program_;
  std::vector<TensorView> weights_;
  const StepInputs& inputs_;
  const KvMemory& kv_memory_;
  const PersistentBuffers& persistent_;
  Memory arena_;
  Memory scratch_;
  Memory counters_;
};

}  // namespace encore::runtime
