#include "diagnose/launches.h"

#include <algorithm>

#include <fmt/format.h>

namespace encore::diagnose {
namespace {

using Values = std::vector<std::optional<ir::ValueId>>;

// Returns the node's values that are operands of one of its launches. It finds them by their
// addresses and shapes.
Values values_of(const Views& launched, const ir::Operands<ir::ValueId>& node, const Views& whole) {
  const std::vector<TensorView>& operands = launched.values();
  const std::vector<ir::ValueId>& values = node.values();
  const std::vector<TensorView>& views = whole.values();
  Values found;
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto is_operand = [&](const TensorView& view) {
      return view.data == operands[i].data && view.shape == operands[i].shape;
    };
    found.emplace_back();
    if (i < views.size() && is_operand(views[i])) {  // the common case: a node of one launch
      found.back() = values[i];
      continue;
    }
    const auto view = std::find_if(views.begin(), views.end(), is_operand);
    if (view != views.end()) found.back() = values[view - views.begin()];
  }
  return found;
}

std::string print_shape(const TensorView& view) {
  std::string text(name(view.dtype));
  text += '[';
  for (int i = 0; i < view.shape.rank(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ",", view.shape[i]);
  }
  return text + (view.is_dense() ? "]" : fmt::format("]/{}", view.row_stride));
}

std::string print_launch(const passes::Program& program, const runtime::Launch& launch,
                         const Operands& operands) {
  const auto operand = [&](const std::optional<ir::ValueId>& value, const TensorView& view) {
    return fmt::format("{} {}", value ? "%" + program.graph.value(*value).name : "scratch",
                       print_shape(view));
  };
  std::string text = fmt::format("{:4} {:32} ", launch.node, launch.kernel->name);
  for (size_t i = 0; i < operands.outputs.size(); ++i)
    text += (i == 0 ? "" : ", ") + operand(operands.outputs[i], launch.args.outputs.values()[i]);
  text += " <-";
  for (size_t i = 0; i < operands.inputs.size(); ++i)
    text += " " + operand(operands.inputs[i], launch.args.inputs.values()[i]);
  if (launch.workspace.scratch_bytes > 0) {
    text += fmt::format("  scratch {} B", launch.workspace.scratch_bytes);
  }
  return text;
}

}  // namespace

Operands operands(const passes::Program& program, const ir::Node& node, const KernelArgs& args,
                  const StepKey& step, const runtime::Addresses& addresses) {
  const KernelArgs whole = runtime::make_args(program, node, step, addresses);
  Operands operands{values_of(args.inputs, node.inputs, whole.inputs),
                    values_of(args.outputs, node.outputs, whole.outputs)};
  // An input of a launch may be an output that an earlier launch of the same node wrote.
  const Values made = values_of(args.inputs, node.outputs, whole.outputs);
  for (size_t i = 0; i < made.size(); ++i) {
    if (!operands.inputs[i]) operands.inputs[i] = made[i];
  }
  return operands;
}

std::string print(const passes::Program& program, const std::vector<runtime::Launch>& table,
                  const StepKey& step, const runtime::Addresses& addresses) {
  std::string text;
  for (const runtime::Launch& launch : table) {
    const ir::Node& node = program.graph.nodes()[launch.node];
    text += print_launch(program, launch, operands(program, node, launch.args, step, addresses));
    text += '\n';
  }
  return text;
}

std::string moved_operand(const passes::Program& program, const runtime::Launch& launch,
                          const StepKey& step, Device& device,
                          const runtime::Addresses& addresses) {
  const ir::Node& node = program.graph.nodes()[launch.node];
  const std::vector<OpLaunch> parts = runtime::expand_node(program, node, step, device, addresses);
  const KernelArgs& now = parts[parts.size() - 1 - launch.id / program.graph.num_nodes()].args;
  const Operands values = operands(program, node, now, step, addresses);
  const auto find = [&](const Values& values, const Views& lowered, const Views& now) {
    for (size_t i = 0; i < values.size(); ++i) {
      const void* before = lowered.values()[i].data;
      const void* after = now.values()[i].data;
      if (!values[i] || after == before) continue;
      return fmt::format("op '{}': %{} was at {} and is at {}", launch.kernel->op,
                         program.graph.value(*values[i]).name, before, after);
    }
    return std::string();
  };
  std::string moved = find(values.inputs, launch.args.inputs, now.inputs);
  return moved.empty() ? find(values.outputs, launch.args.outputs, now.outputs) : moved;
}

}  // namespace encore::diagnose
