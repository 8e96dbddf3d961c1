// Lowering: makes a table of the launches of a segment at one size. Afterwards nothing tests a
// shape.
#pragma once

#include <optional>
#include <vector>

#include "backend/device.h"
#include "backend/expand.h"
#include "passes/program.h"

namespace encore::runtime {

// One launch of a bucket's table: its kernel, its parameters, and its place among the others. A
// fused op that no kernel takes has several. No recording may hold a launch that reads lengths.
struct Launch : OpLaunch {
  int node = 0;         // index in the program's graph
  int id = 0;           // unique within a step: that of a node's last launch is the node's index
  Workspace workspace;  // of its node
  std::vector<int> after;
  BoundLaunch bound;
};

// Turns a value into addresses at given sizes.
class Addresses {
 public:
  virtual ~Addresses() = default;
  [[nodiscard]] virtual TensorView view(ir::ValueId value, const ir::Sizes& sizes) const = 0;
  // Scratch shared by all launches. Errors: kMemory when larger than what was set aside.
  [[nodiscard]] virtual void* scratch(int64_t bytes) const = 0;
  [[nodiscard]] virtual uint32_t* counters(int64_t count) const = 0;
};

// The memory of a value that a node makes: in the arena as planned, or in the input, weight or
// state that it is a view of or written over, for which `others` is asked.
TensorView node_view(const passes::Program& program, ir::ValueId id, const ir::Sizes& sizes,
                     std::byte* arena, const Addresses& others);

// The sizes of the step for which a node's kernel is chosen; nothing where the node has no rows in such a step, or is of no
// use there, and is not launched. Sequences that guess are rows of a token each.
std::optional<StepKey> step_of(const passes::Program& program, const ir::Node& node,
                               const StepKey& step);

// The arguments of a node's kernel at that shape, without workspace. REQUIRES: it has rows there.
KernelArgs make_args(const passes::Program& program, const ir::Node& node, const StepKey& step,
                     const Addresses& addresses);

// The launches of a node at that shape, one after the other, not bound yet.
// Errors: kUnsupported naming the op.
std::vector<OpLaunch> expand_node(const passes::Program& program, const ir::Node& node,
                                  const StepKey& step, Device& device, const Addresses& addresses);

// The table of nodes [first, last) at one step shape, kernels chosen and bound.
// Errors: kUnsupported or kCompile naming the op.
std::vector<Launch> lower(const passes::Program& program, int first, int last, const StepKey& step,
                          Device& device, const Addresses& addresses);

// The most scratch and the most counters that any launch of these steps asks for. Binds nothing.
Workspace workspace_of(const passes::Program& program, const std::vector<StepKey>& steps,
                       Device& device, const Addresses& addresses);

}  // namespace encore::runtime
