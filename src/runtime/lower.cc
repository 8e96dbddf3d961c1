#include "runtime/lower.h"

#include <algorithm>

#include <fmt/format.h>

namespace encore::runtime {
namespace {

using passes::Program;

KernelArgs make_args(const Program& program, const ir::Node& node, const StepShape& step,
                     const Addresses& addresses) {
  KernelArgs args;
  args.attrs = node.attrs;
  args.step = step;
  for (const ir::ValueId id : node.inputs)
    args.inputs.push_back(addresses.view(id, step.padded));
  for (const ir::ValueId id : node.outputs)
    args.outputs.push_back(addresses.view(id, step.padded));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    // The shape function at these sizes is what the kernel is given and held to.
    ENCORE_CHECK(args.outputs[i].shape ==
                 program.graph.value(node.outputs[i]).type.resolve(step.padded));
  }
  return args;
}

Launch lower_node(const Program& program, int index, const StepShape& step, Device& device,
                  const Addresses& addresses) {
  const ir::Node& node = program.graph.nodes()[index];
  Launch launch{.node = index, .op = node.op};
  launch.args = make_args(program, node, step, addresses);
  launch.kernel = &device.kernels().choose(node.op->name, launch.args);
  launch.after = program.after[index];
  launch.reads_lengths =
      launch.kernel->reads_lengths != nullptr && launch.kernel->reads_lengths(launch.args);
  if (launch.kernel->workspace != nullptr) {
    launch.workspace = launch.kernel->workspace(launch.args);
    launch.args.scratch = addresses.scratch(launch.workspace.scratch_bytes);
    launch.args.counters = addresses.counters(launch.workspace.num_counters);
  }
  try {
    launch.bound = launch.kernel->bind(device, launch.args);
  } catch (const Error& error) {
    fail(error.kind(), "op '{}', kernel {}: {}", node.op->name, launch.kernel->name, error.what());
  }
  return launch;
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
  const ir::Node& node = program.graph.nodes()[launch.node];
  std::string text = fmt::format("{:4} {:32} ", launch.node, launch.kernel->name);
  for (size_t i = 0; i < launch.args.outputs.size(); ++i) {
    text += fmt::format("{}%{} {}", i == 0 ? "" : ", ", program.graph.value(node.outputs[i]).name,
                        print_shape(launch.args.outputs[i]));
  }
  text += " <-";
  for (size_t i = 0; i < launch.args.inputs.size(); ++i) {
    text += fmt::format(" %{} {}", program.graph.value(node.inputs[i]).name,
                        print_shape(launch.args.inputs[i]));
  }
  if (launch.workspace.scratch_bytes > 0) {
    text += fmt::format("  scratch {} B", launch.workspace.scratch_bytes);
  }
  return text;
}

}  // namespace

std::vector<Launch> lower(const Program& program, int first, int last, const StepShape& step,
                          Device& device, const Addresses& addresses) {
  std::vector<Launch> table;
  int last_user = -1;  // of the shared scratch: its users run one after the other
  for (int index = first; index < last; ++index) {
    if (program.graph.nodes()[index].op->is_view) continue;
    Launch launch = lower_node(program, index, step, device, addresses);
    if (has_workspace(launch)) {
      if (last_user >= 0) launch.after.push_back(last_user);
      last_user = index;
    }
    table.push_back(std::move(launch));
  }
  return table;
}

Workspace workspace_of(const Program& program, const StepShape& step, Device& device,
                       const Addresses& addresses) {
  Workspace most;
  for (const ir::Node& node : program.graph.nodes()) {
    if (node.op->is_view) continue;
    const KernelArgs args = make_args(program, node, step, addresses);
    const Kernel& kernel = device.kernels().choose(node.op->name, args);
    if (kernel.workspace == nullptr) continue;
    const Workspace workspace = kernel.workspace(args);
    most.scratch_bytes = std::max(most.scratch_bytes, workspace.scratch_bytes);
    most.num_counters = std::max(most.num_counters, workspace.num_counters);
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
