// Names the values that the launches of a table read and write, for people and for comparisons. A
// step needs addresses only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/lower.h"

namespace encore::diagnose {

// The values whose memory the operands of a launch are; none for memory that only the launches of
// one node share.
struct Operands {
  std::vector<std::optional<ir::ValueId>> inputs;
  std::vector<std::optional<ir::ValueId>> outputs;
};
// Finds the operands of a launch whose arguments are `args`, one of the node's launches at that
// step and these addresses.
Operands operands(const passes::Program& program, const ir::Node& node, const KernelArgs& args,
                  const StepKey& step, const runtime::Addresses& addresses);

// The table of that step as text, one line a launch: node, kernel, operand shapes, workspace.
// Without addresses, so that it is the same on every run.
std::string print(const passes::Program& program, const std::vector<runtime::Launch>& table,
                  const StepKey& step, const runtime::Addresses& addresses);

// Compares the addresses in a launch with those that the step would use now, and describes the
// first operand that has moved: "op 'x': %y was at 0x10 and is at 0x20". Returns "" if none has.
std::string moved_operand(const passes::Program& program, const runtime::Launch& launch,
                          const StepKey& step, Device& device, const runtime::Addresses& addresses);

}  // namespace encore::diagnose
