// Names the values that the launches of a launch table read and write, for people and for
// comparisons. A step itself uses addresses only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/lower.h"

namespace encore::diagnose {

// For each operand of a launch, the value whose memory the operand is. It is absent where the
// memory is used only between the launches of one node.
struct Operands {
  std::vector<std::optional<ir::ValueId>> inputs;
  std::vector<std::optional<ir::ValueId>> outputs;
};
// Finds the values of the operands of one launch of `node`. `args`: the arguments of that launch,
// made for the step `step` and `addresses`.
Operands operands(const passes::Program& program, const ir::Node& node, const KernelArgs& args,
                  const StepKey& step, const runtime::Addresses& addresses);

// Returns the launch table of a step as text, with a line for each launch: node, kernel, operand
// shapes, workspace. The text has no addresses, so it is the same in every run.
std::string print(const passes::Program& program, const std::vector<runtime::Launch>& table,
                  const StepKey& step, const runtime::Addresses& addresses);

// Compares the addresses in a launch with the addresses that `addresses` gives the same operands
// now. Returns text about the first operand that has moved: "op 'x': %y was at 0x10 and is at
// 0x20". Returns "" if no operand has moved.
std::string moved_operand(const passes::Program& program, const runtime::Launch& launch,
                          const StepKey& step, Device& device, const runtime::Addresses& addresses);

}  // namespace encore::diagnose
