#include "runtime/persistent.h"

#include <algorithm>
#include <iterator>
#include <map>
namespace encore::runtime {
namespace {

using passes::Program;

// Which output of which of the launches a value is; with output -1 when it is a view of one.
Stage::Origin find_origin(const Program& program, std::span<const Launch> launches,
                          ir::ValueId value) {
  const ir::Graph& graph = program.graph;
  bool is_view = false;
  while (graph.value(value).kind == ir::ValueKind::kNode) {
    const ir::Node& producer = graph.node(graph.value(value).producer);
    if (!producer.op->is_view) break;
    value = producer.inputs[0];
    is_view = true;
  }
  for (size_t stage = 0; stage < launches.size(); ++stage) {
    const std::vector<ir::ValueId>& outputs = graph.nodes()[launches[stage].node].outputs;
    const auto place = std::find(outputs.begin(), outputs.end(), value);
    if (place == outputs.end()) continue;
    return {static_cast<int>(stage), is_view ? -1 : static_cast<int>(place - outputs.begin())};
  }
  return {};
}

// Directly, or as a view of it.
bool is_read_after(const Program& program, std::span<const Launch> launches, ir::ValueId value,
                   const std::vector<std::vector<ir::NodeId>>& readers) {
  const std::vector<ir::ValueId>& outputs = program.graph.outputs();
  if (std::find(outputs.begin(), outputs.end(), value) != outputs.end()) return true;
  return std::any_of(
      readers[value.index].begin(), readers[value.index].end(), [&](ir::NodeId reader) {
        const ir::Node& node = program.graph.node(reader);
        if (node.op->is_view) {
          return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ir::ValueId view) {
            return is_read_after(program, launches, view, readers);
          });
        }
        return std::none_of(launches.begin(), launches.end(),
                            [&](const Launch& launch) { return launch.node == reader.index; });
      });
}

bool may_be_stage(const PersistentKernel& kernel, const Launch& launch) {
  return kernel.accepts_stage(*launch.kernel, launch.args);
}

Launch merge(const Program& program, const PersistentKernel& kernel, Device& device,
             std::vector<Launch> launches) {
  Launch merged{.node = launches.back().node, .op = launches.back().op, .kernel = &kernel.row};
  for (const Launch& launch : launches) {
    const KernelArgs& args = launch.args;
    merged.args.inputs.insert(merged.args.inputs.end(), args.inputs.begin(), args.inputs.end());
    merged.args.outputs.insert(merged.args.outputs.end(), args.outputs.begin(), args.outputs.end());
  }
  try {
    merged.bound = kernel.bind(device, stages_of(program, launches));
  } catch (const Error& error) {
    fail(error.kind(), "kernel {}: {}", kernel.row.name, error.what());
  }
  merged.stages = std::move(launches);
  return merged;
}

// Who waited for a stage waits for the launch that stands for its chain.
void wait_for_runs(std::vector<Launch>& table) {
  std::map<int, int> run_of;  // by node
  for (const Launch& launch : table) {
    for (const Launch& stage : launch.stages)
      run_of[stage.node] = launch.node;
  }
  for (Launch& launch : table) {
    for (const Launch& stage : launch.stages)
      launch.after.insert(launch.after.end(), stage.after.begin(), stage.after.end());
    for (int& node : launch.after) {
      const auto place = run_of.find(node);
      if (place != run_of.end()) node = place->second;
    }
    std::sort(launch.after.begin(), launch.after.end());
    launch.after.erase(std::unique(launch.after.begin(), launch.after.end()), launch.after.end());
    std::erase(launch.after, launch.node);
  }
}

}  // namespace

std::vector<Stage> stages_of(const Program& program, std::span<const Launch> launches) {
  const auto readers = program.graph.readers();
  std::vector<Stage> stages;
  for (const Launch& launch : launches) {
    const ir::Node& node = program.graph.nodes()[launch.node];
    Stage stage{.kernel = launch.kernel, .args = &launch.args, .inputs = {}, .read_after = {}};
    for (const ir::ValueId input : node.inputs)
      stage.inputs.push_back(find_origin(program, launches, input));
    for (const ir::ValueId output : node.outputs)
      stage.read_after.push_back(is_read_after(program, launches, output, readers));
    stages.push_back(std::move(stage));
  }
  return stages;
}

bool has_stages(std::span<const Launch> table, std::span<const PersistentKernel> kernels) {
  return std::any_of(table.begin(), table.end(), [&](const Launch& launch) {
    return std::any_of(kernels.begin(), kernels.end(), [&](const PersistentKernel& kernel) {
      return may_be_stage(kernel, launch);
    });
  });
}

std::vector<Chain> find_chains(const Program& program, std::span<const Launch> table,
                               std::span<const PersistentKernel> kernels) {
  const auto find_chain = [&](int first) -> Chain {
    for (const PersistentKernel& kernel : kernels) {
      int last = first;
      while (last < std::ssize(table) && may_be_stage(kernel, table[last]))
        ++last;
      if (last - first < 2) continue;
      const std::vector<Stage> stages = stages_of(program, table.subspan(first, last - first));
      for (size_t count = stages.size(); count >= 2; --count) {
        if (kernel.accepts(std::span(stages).first(count)))
          return {first, first + static_cast<int>(count), &kernel};
      }
    }
    return {first, first + 1, nullptr};
  };
  std::vector<Chain> chains;
  for (int first = 0; first < std::ssize(table); first = chains.back().last) {
    chains.push_back(find_chain(first));
  }
  std::erase_if(chains, [](const Chain& chain) { return chain.kernel == nullptr; });
  return chains;
}

std::vector<Launch> merge_chains(const Program& program, std::vector<Launch> table,
                                 Device& device) {
  std::vector<Launch> merged;
  auto next = table.begin();
  for (const Chain& chain : find_chains(program, table, device.persistent_kernels())) {
    const auto first = table.begin() + chain.first;
    const auto last = table.begin() + chain.last;
    std::move(next, first, std::back_inserter(merged));
    merged.push_back(merge(program, *chain.kernel, device, {first, last}));
    next = last;
  }
  std::move(next, table.end(), std::back_inserter(merged));
  wait_for_runs(merged);
  return merged;
}

}  // namespace encore::runtime
