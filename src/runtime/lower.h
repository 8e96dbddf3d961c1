// Lowering makes a table of the launches of a segment at one step shape. No code that runs later
// tests a shape.
#pragma once

#include <optional>
#include <vector>

#include "backend/device.h"
#include "backend/expand.h"
#include "passes/program.h"

namespace encore::runtime {

// One launch in the table of a bucket: its kernel, its arguments, and the launches that it must
// follow. A fused op that no kernel takes has several launches. No recording may hold a launch that
// reads StepLengths.
struct Launch : OpLaunch {
  int node = 0;         // index in the program's graph
  int id = 0;           // unique within a step; a node's last launch has the node's index
  Workspace workspace;  // the workspace of its node
  std::vector<int> after;
  BoundLaunch bound;
};

// Resolves the values of a program to memory addresses at given sizes.
class Addresses {
 public:
  virtual ~Addresses() = default;
  [[nodiscard]] virtual TensorView view(ir::ValueId value, const ir::Sizes& sizes) const = 0;
  // Returns the scratch memory that all launches share. Errors: kMemory where `bytes` is more than
  // was allocated.
  [[nodiscard]] virtual void* scratch(int64_t bytes) const = 0;
  [[nodiscard]] virtual uint32_t* counters(int64_t count) const = 0;
};

// Returns the memory of a value that a node makes. The value lies in the arena at the offset that
// the program gives it. Where it is a view of an input, weight or state, or written over one, the
// address comes from `others`.
TensorView node_view(const passes::Program& program, ir::ValueId id, const ir::Sizes& sizes,
                     std::byte* arena, const Addresses& others);

// Returns the step shape for which a node's kernel is chosen. Absent where the node is not
// launched, because it has no rows in such a step or the step has too few drafts for it. For the
// nodes of a draft model, whose rows are the sequences that guess, the shape is a uniform step of
// one token per sequence.
std::optional<StepKey> step_of(const passes::Program& program, const ir::Node& node,
                               const StepKey& step);

// Returns the arguments of the kernel of a node at the step shape `step`, without workspace.
// REQUIRES: the node is launched at that shape (step_of()).
KernelArgs make_args(const passes::Program& program, const ir::Node& node, const StepKey& step,
                     const Addresses& addresses);

// Returns the launches of a node at the step shape `step`, in the order in which they run. They are
// not bound yet. Errors: kUnsupported naming the op.
std::vector<OpLaunch> expand_node(const passes::Program& program, const ir::Node& node,
                                  const StepKey& step, Device& device, const Addresses& addresses);

// Returns the table of launches of the nodes [first, last) at one step shape, with kernels chosen
// and bound. Errors: kUnsupported or kCompile naming the op.
std::vector<Launch> lower(const passes::Program& program, int first, int last, const StepKey& step,
                          Device& device, const Addresses& addresses);

// Returns the most scratch memory and the most counters that any node of these steps needs. Binds
// no kernel.
Workspace workspace_of(const passes::Program& program, const std::vector<StepKey>& steps,
                       Device& device, const Addresses& addresses);

}  // namespace encore::runtime
