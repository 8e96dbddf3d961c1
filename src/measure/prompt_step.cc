#include "measure/prompt_step.h"

#include <numeric>

#include "base/rounding.h"
#include "diagnose/compare.h"
#include "diagnose/probe.h"
#include "engine/input_writer.h"

namespace encore::measure {
namespace {

StepLengths begin_step(loader::LoadedModel& model, std::span<const int32_t> prompt, int64_t first,
                       int64_t count, int32_t adapter) {
  runtime::Executor& executor = model.executor();
  executor.begin(count <= model.limits().max_q ? StepKey::uniform(1, count)
                                               : StepKey::mixed(count, 1));
  std::vector<int32_t> pages(static_cast<size_t>(div_up(first + count, model.page_size())));
  std::iota(pages.begin(), pages.end(), 0);
  engine::InputWriter(executor, model.page_size())
      .add({.ids = prompt.subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
            .first = first,
            .pages = pages,
            .adapter = adapter});
  return {.max_query_len = count, .max_kv_len = first + count};
}

// Returns whether the value is a state of the residual stream: its rows have the hidden size, and
// its name is that of the sums, "x" or "x.N".
bool is_residual(const ir::Value& value, int64_t hidden_size) {
  return (value.name == "x" || value.name.starts_with("x.")) && value.type.dims.size() == 2 &&
         value.type.dims[1].value == hidden_size;
}

}  // namespace

void run_prompt_step(loader::LoadedModel& model, std::span<const int32_t> prompt, int64_t first,
                     int64_t count, int32_t adapter) {
  model.executor().run(begin_step(model, prompt, first, count, adapter));
}

std::vector<Residual> residuals(loader::LoadedModel& model, std::span<const int32_t> prompt) {
  const auto num_tokens = static_cast<int64_t>(prompt.size());
  const int64_t hidden_size = model.config().hidden_size;
  const ir::Graph& graph = model.program().graph;
  runtime::Executor& executor = model.executor();
  const StepLengths lengths = begin_step(model, prompt, 0, num_tokens, -1);
  runtime::Tables& tables = executor.loaded().tables;
  const StepKey key = executor.choice().key;
  std::vector<Residual> found;
  size_t count = 0;
  for (int segment = 0; segment < tables.num_segments(); ++segment) {
    const std::vector<runtime::Launch>& launches = tables.at(segment, key);
    for (size_t i = 0; i < launches.size(); ++i) {
      ++count;
      // A node's outputs are complete only after its last launch.
      if (i + 1 < launches.size() && launches[i + 1].node == launches[i].node) continue;
      for (const ir::ValueId id : graph.node(ir::NodeId{launches[i].node}).outputs) {
        const ir::Value& value = graph.value(id);
        if (!is_residual(value, hidden_size)) continue;
        diagnose::run_prefix(executor, lengths, runtime::Mode::kEager, count);
        const std::vector<std::byte> bytes = diagnose::read_value(executor, id);
        Residual residual{value.name, {}};
        const int64_t size = size_of(value.type.dtype);
        for (int64_t at = 0; at < num_tokens * hidden_size; ++at)
          residual.numbers.push_back(
              static_cast<float>(diagnose::element(&bytes[at * size], value.type.dtype)));
        found.push_back(std::move(residual));
      }
    }
  }
  return found;
}

}  // namespace encore::measure
