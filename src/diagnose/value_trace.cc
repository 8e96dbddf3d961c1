#include "diagnose/value_trace.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "diagnose/compare.h"
#include "diagnose/probe.h"

namespace encore::diagnose {
namespace {

std::string summary(const std::vector<std::byte>& data, DType dtype, int64_t count) {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  double sum = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = element(&data[i * size_of(dtype)], dtype);
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
    sum += value;
    ++finite;
  }
  if (finite == 0) return fmt::format("none of {} finite", count);
  return fmt::format("{:.6g} to {:.6g}, mean {:.6g}, {} of {} not finite", least, most,
                     sum / static_cast<double>(finite), count - finite, count);
}

}  // namespace

ValueTrace::ValueTrace(const passes::Program& program, const std::vector<std::string>& filter) {
  const ir::Graph& graph = program.graph;
  std::vector<bool> matched(filter.size());
  for (const ir::Node& node : graph.nodes()) {
    for (const ir::ValueId id : node.outputs) {
      const ir::ValueId root = program.arena.placements[id.index].root;
      if (graph.value(root).kind != ir::ValueKind::kNode) continue;
      bool is_wanted = false;
      for (size_t i = 0; i < filter.size(); ++i) {
        const bool matches = graph.value(id).name.find(filter[i]) != std::string::npos ||
                             node.op->name.find(filter[i]) != std::string::npos;
        matched[i] = matched[i] || matches;
        is_wanted |= matches;
      }
      if (is_wanted) values_.push_back(id);
    }
  }
  const auto unmatched = std::find(matched.begin(), matched.end(), false);
  if (unmatched != matched.end()) {
    fail(ErrorKind::kUsage,
         "--trace: no value or op has '{}' in its name; `encore inspect --after plan_arena` shows "
         "them",
         filter[unmatched - matched.begin()]);
  }
}

void ValueTrace::operator()(runtime::Executor& executor) const {
  const ir::Graph& graph = executor.loaded().program.graph;
  for (const ir::ValueId id : values_) {
    const ir::Value& value = graph.value(id);
    const Shape shape = value.type.resolve(executor.loaded().inputs.real());
    log::info("step {}, {}: %{} = {}: {}", executor.next_step(), name(executor.choice().mode),
              value.name, graph.node(value.producer).op->name,
              summary(read_value(executor, id), value.type.dtype, shape.num_elements()));
  }
}

}  // namespace encore::diagnose
