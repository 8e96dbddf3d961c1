#include "runtime/lower.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace encore::runtime {
namespace {

using passes::Program;

using Values = std::vector<std::optional<ir::ValueId>>;

// Which of a node's values the operands of one of its launches are, by where they lie.
Values values_of(const std::vector<TensorView>& operands, const std::vector<ir::ValueId>& values,
                 const std::vector<TensorView>& views) {
  Values found;
  for (const TensorView& operand : operands) {
    const auto view = std::find_if(views.begin(), views.end(), [&](const TensorView& each) {
      return each.data == operand.data && each.shape == operand.shape;
    });
    found.emplace_back();
    if (view != views.end()) found.back() = values[view - views.begin()];
  }
  return found;
}

// Fills in which values a launch reads and writes.
void name_operands(const ir::Node& node, const KernelArgs& args, Launch& launch) {
  launch.outputs = values_of(launch.args.outputs, node.outputs, args.outputs);
  launch.inputs = values_of(launch.args.inputs, node.inputs, args.inputs);
  const Values made = values_of(launch.args.inputs, node.outputs, args.outputs);
  for (size_t i = 0; i < made.size(); ++i) {
    if (!launch.inputs[i]) launch.inputs[i] = made[i];
  }
}

// A node's launches, one after the other.
std::vector<Launch> lower_node(const Program& program, int index, const StepKey& step,
                               Device& device, const Addresses& addresses) {
  const ir::Node& node = program.graph.nodes()[index];
  KernelArgs args = make_args(program, node, step, addresses);
  const auto expanded = [&] { return expand(device.kernels(), node.op->name, args); };
  const Workspace workspace = total_workspace(expanded());
  args.scratch = addresses.scratch(workspace.scratch_bytes);
  args.counters = addresses.counters(workspace.num_counters);
  std::vector<Launch> launches;
  for (OpLaunch& part : expanded()) {
    Launch launch{.node = index, .kernel = part.kernel, .workspace = workspace};
    launch.reads_lengths = part.reads_lengths();
    try {
      launch.bound = part.kernel->bind(device, part.args);
    } catch (const Error& error) {
      fail(error.kind(), "op '{}', kernel {}: {}", node.op->name, part.kernel->name, error.what());
    }
    launch.args = std::move(part.args);
    name_operands(node, args, launch);
    launches.push_back(std::move(launch));
  }
  const int count = static_cast<int>(launches.size());
  if (count == 1) {
    launches[0].inputs.assign(node.inputs.begin(), node.inputs.end());
    launches[0].outputs.assign(node.outputs.begin(), node.outputs.end());
  }
  for (int i = 0; i < count; ++i) {
    launches[i].id = index + (count - 1 - i) * program.graph.num_nodes();
    launches[i].after = i == 0 ? program.after[index] : std::vector<int>{launches[i - 1].id};
  }
  return launches;
}

bool has_workspace(const Launch& launch) {
  return launch.workspace.scratch_bytes > 0 || launch.workspace.num_counters > 0;
}

std::string print_shape(const TensorView& view) {
  std::string text(name(view.dtype));
  text += '[';
  for (int i = 0; i < view.shape.rank(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ",", view.shape[i]);
  }
  return text + (view.is_dense() ? "]" : fmt::format("]/{}", view.row_stride));
}

std::string print_launch(const Program& program, const Launch& launch) {
  const auto operand = [&](const std::optional<ir::ValueId>& value, const TensorView& view) {
    return fmt::format("{} {}", value ? "%" + program.graph.value(*value).name : "scratch",
                       print_shape(view));
  };
  std::string text = fmt::format("{:4} {:32} ", launch.node, launch.kernel->name);
  for (size_t i = 0; i < launch.outputs.size(); ++i)
    text += (i == 0 ? "" : ", ") + operand(launch.outputs[i], launch.args.outputs[i]);
  text += " <-";
  for (size_t i = 0; i < launch.inputs.size(); ++i)
    text += " " + operand(launch.inputs[i], launch.args.inputs[i]);
  if (launch.workspace.scratch_bytes > 0) {
    text += fmt::format("  scratch {} B", launch.workspace.scratch_bytes);
  }
  return text;
}

}  // namespace

KernelArgs make_args(const Program& program, const ir::Node& node, const StepKey& step,
                     const Addresses& addresses) {
  KernelArgs args;
  args.attrs = node.attrs;
  args.step = step;
  for (const ir::ValueId id : node.inputs)
    args.inputs.push_back(addresses.view(id, step.sizes()));
  for (const ir::ValueId id : node.outputs)
    args.outputs.push_back(addresses.view(id, step.sizes()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    // The shape function at these sizes is what the kernel is given and held to.
    ENCORE_CHECK(args.outputs[i].shape ==
                 program.graph.value(node.outputs[i]).type.resolve(step.sizes()));
  }
  return args;
}

std::vector<Launch> lower(const Program& program, int first, int last, const StepKey& step,
                          Device& device, const Addresses& addresses) {
  std::vector<Launch> table;
  int last_user = -1;  // of the shared scratch: its users run one after the other
  for (int index = first; index < last; ++index) {
    if (program.graph.nodes()[index].op->is_view) continue;
    std::vector<Launch> launches = lower_node(program, index, step, device, addresses);
    if (has_workspace(launches.front())) {
      if (last_user >= 0) launches.front().after.push_back(last_user);
      last_user = index;
    }
    std::move(launches.begin(), launches.end(), std::back_inserter(table));
  }
  return table;
}

Workspace workspace_of(const Program& program, const std::vector<StepKey>& steps, Device& device,
                       const Addresses& addresses) {
  Workspace most;
  for (const StepKey& step : steps) {
    for (const ir::Node& node : program.graph.nodes()) {
      if (node.op->is_view) continue;
      const Workspace workspace = total_workspace(
          expand(device.kernels(), node.op->name, make_args(program, node, step, addresses)));
      most.scratch_bytes = std::max(most.scratch_bytes, workspace.scratch_bytes);
      most.num_counters = std::max(most.num_counters, workspace.num_counters);
    }
  }
  return most;
}

std::string print(const Program& program, const std::vector<Launch>& table) {
  std::string text;
  for (const Launch& launch : table)
    text += print_launch(program, launch) + '\n';
  return text;
}

// FNV-1a, 64 bits.
uint64_t hash(const std::string& text) {
  uint64_t value = 0xcbf29ce484222325U;
  for (const char c : text)
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return value;
}

}  // namespace encore::runtime
