#include "runtime/lower.h"

#include <algorithm>
#include <set>
#include <utility>

#include "backend/push.h"

namespace encore::runtime {
namespace {

using passes::Program;

BoundLaunch bind(Device& device, const ir::Node& node, const OpLaunch& launch) {
  try {
    return launch.kernel->bind(device, launch.args);
  } catch (const Error& error) {
    fail(error.kind(), "op '{}', kernel {}: {}", node.op->name, launch.kernel->name, error.what());
  }
}

// Returns the exchange buffer of a collective of the program. Throws where the program has only one
// collective: two runs in a row would use the same buffer, and a rank that is ahead would overwrite
// vectors that a slower rank has not read yet (push.h).
int exchange_buffer(const Program& program, const ir::Node& node) {
  int64_t index = 0;
  int64_t count = 0;
  for (const ir::Node& other : program.graph.nodes()) {
    if (!other.op->is_collective) continue;
    if (&other == &node) index = count;
    ++count;
  }
  if (count == 1) {
    fail(
        ErrorKind::kUnsupported,
        "op '{}' of {} is the program's only exchange between ranks, and runs of it in a row would "
        "overwrite each other's data: a program needs two",
        node.op->name, node.attrs.get_string("of"));
  }
  return push::buffer_of(index, count);
}

// Returns whether the number of rows of a value depends on whether the step has drafts.
bool is_of_some_steps(const ir::Value& value) {
  const ir::Symbol rows = value.type.rows();
  return rows == ir::Symbol::kGuessing || rows == ir::Symbol::kUnguessed;
}

// Returns whether a node has no rows in some steps, where it is not launched.
bool may_be_left_out(const ir::Graph& graph, const ir::Node& node) {
  return std::ranges::any_of(
      node.inputs, [&](ir::ValueId input) { return is_of_some_steps(graph.value(input)); });
}

// Returns the nodes that a node waits for. Where one of these may be left out of a step, the result
// also holds the nodes that it would have waited for.
std::vector<int> waits_for(const Program& program, int index) {
  std::set<int> waits;
  std::vector<int> open = program.after[index];
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (!waits.insert(node).second) continue;
    if (!may_be_left_out(program.graph, program.graph.nodes()[node])) continue;
    open.insert(open.end(), program.after[node].begin(), program.after[node].end());
  }
  return {waits.begin(), waits.end()};
}

// Adds to `after` all earlier nodes that some steps leave out, such as those of a draft model. The
// first user of the shared scratch in a segment waits for them, since the dependencies of the graph
// need not order the launches of a draft model and of the model itself.
void wait_for_other_models(const Program& program, int index, std::vector<int>& after) {
  for (int node = 0; node < index; ++node) {
    if (may_be_left_out(program.graph, program.graph.nodes()[node])) after.push_back(node);
  }
}

}  // namespace

TensorView node_view(const passes::Program& program, ir::ValueId id, const ir::Sizes& sizes,
                     std::byte* arena, const Addresses& others) {
  const ir::Type& type = program.graph.value(id).type;
  const passes::Placement& place = program.arena.placements[id.index];
  const ir::Value& root = program.graph.value(place.root);
  if (root.kind != ir::ValueKind::kNode) return others.view(place.root, sizes);
  const int64_t offset = program.arena.placements[place.root.index].offset;
  TensorView view(arena + offset + place.column * size_of(type.dtype), type.dtype,
                  type.resolve(sizes));
  view.row_stride = root.type.resolve(sizes).num_elements_from(1);
  return view;
}

std::optional<StepKey> step_of(const Program& program, const ir::Node& node, const StepKey& step) {
  const auto index = static_cast<size_t>(&node - program.graph.nodes().data());
  const int64_t num_drafts = step.logits_each() - 1;
  if (!program.least_drafts.empty() && num_drafts < program.least_drafts[index])
    return std::nullopt;
  StepKey own = step;
  for (const ir::ValueId input : node.inputs) {
    const ir::Value& value = program.graph.value(input);
    if (!is_of_some_steps(value)) continue;
    if (value.type.dims[0].resolve(step.sizes()) == 0) return std::nullopt;
    if (value.type.rows() == ir::Symbol::kGuessing) own = StepKey::uniform(step.sequences);
  }
  return own;
}

KernelArgs make_args(const Program& program, const ir::Node& node, const StepKey& step,
                     const Addresses& addresses) {
  KernelArgs args;
  args.attrs = node.attrs;
  args.step = step_of(program, node, step).value();
  args.batch_invariant = program.batch_invariant;
  if (node.op->is_collective) args.exchange_buffer = exchange_buffer(program, node);
  const auto view = [&](ir::ValueId id) {
    const TensorView view = addresses.view(id, step.sizes());
    // The kernel must get the shape that the op's shape function gives for these sizes.
    ENCORE_CHECK(program.graph.value(id).kind != ir::ValueKind::kNode ||
                 view.shape == program.graph.value(id).type.resolve(step.sizes()));
    return view;
  };
  args.inputs = node.inputs.map(view);
  args.outputs = node.outputs.map(view);
  return args;
}

std::vector<OpLaunch> expand_node(const Program& program, const ir::Node& node, const StepKey& step,
                                  Device& device, const Addresses& addresses) {
  KernelArgs args = make_args(program, node, step, addresses);
  const auto expanded = [&] { return expand(device.kernels(), node.op->name, args); };
  std::vector<OpLaunch> launches = expanded();
  const Workspace workspace = total_workspace(launches);
  if (workspace.scratch_bytes == 0 && workspace.num_counters == 0) return launches;
  args.scratch = addresses.scratch(workspace.scratch_bytes);
  args.counters = addresses.counters(workspace.num_counters);
  return expanded();
}

std::vector<Launch> lower(const Program& program, int first, int last, const StepKey& step,
                          Device& device, const Addresses& addresses) {
  std::vector<Launch> table;
  int last_user = -1;        // last user of the shared scratch: its users run one after the other
  int last_collective = -1;  // collectives run in one order on all ranks
  for (int index = first; index < last; ++index) {
    const ir::Node& node = program.graph.nodes()[index];
    if (node.op->is_view) continue;
    if (!step_of(program, node, step)) continue;
    std::vector<OpLaunch> parts = expand_node(program, node, step, device, addresses);
    const Workspace workspace = total_workspace(parts);
    std::vector<int> after = waits_for(program, index);
    if (node.op->is_collective) {
      if (last_collective >= 0) after.push_back(last_collective);
      last_collective = index;
    }
    if (workspace.scratch_bytes > 0 || workspace.num_counters > 0) {
      if (last_user >= 0) {
        after.push_back(last_user);
      } else {
        wait_for_other_models(program, index, after);
      }
      last_user = index;
    }
    auto num_left = static_cast<int>(parts.size());
    for (OpLaunch& part : parts) {
      Launch launch{std::move(part)};
      launch.node = index;
      launch.id = index + --num_left * program.graph.num_nodes();
      launch.workspace = workspace;
      launch.after = std::exchange(after, {launch.id});
      launch.bound = bind(device, node, launch);
      table.push_back(std::move(launch));
    }
  }
  return table;
}

Workspace workspace_of(const Program& program, const std::vector<StepKey>& steps, Device& device,
                       const Addresses& addresses) {
  Workspace most;
  for (const StepKey& step : steps) {
    for (const ir::Node& node : program.graph.nodes()) {
      if (node.op->is_view || !step_of(program, node, step)) continue;
      const Workspace workspace = total_workspace(
          expand(device.kernels(), node.op->name, make_args(program, node, step, addresses)));
      most.scratch_bytes = std::max(most.scratch_bytes, workspace.scratch_bytes);
      most.num_counters = std::max(most.num_counters, workspace.num_counters);
    }
  }
  return most;
}

}  // namespace encore::runtime
