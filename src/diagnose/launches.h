// What the launches of a table read and write, by name: for people, and to compare. Steps need
// addresses alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/lower.h"

namespace encore::diagnose {

// The values whose memory the operands of a launch are; none for what lies between the launches of
// one node.
struct Operands {
  std::vector<std::optional<ir::ValueId>> inputs;
  std::vector<std::optional<ir::ValueId>> outputs;
};
// `args`: of one of the node's launches at that step and these addresses.
Operands operands(const passes::Program& program, const ir::Node& node, const KernelArgs& args,
                  const StepKey& step, const runtime::Addresses& addresses);

// The table of that step as text, one line a launch: node, kernel, operand shapes, workspace.
// Without addresses, so that it is the same on every run.
std::string print(const passes::Program& program, const std::vector<runtime::Launch>& table,
                  const StepKey& step, const runtime::Addresses& addresses);

// What no longer lies where a launch of that step has it: "op 'x': %y was at 0x10 and is at 0x20".
// Empty: everything does.
std::string moved_operand(const passes::Program& program, const runtime::Launch& launch,
                          const StepKey& step, Device& device, const runtime::Addresses& addresses);

}  // namespace encore::diagnose
