#include "measure/drawn_experts.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "backend/routing.h"
#include "measure/routers.h"
#include "planning/op_cost.h"

namespace encore::measure {
namespace {

constexpr std::string_view kShares = "expert_shares";

// Sets the share of a layer's draws that all experts divide equally. So each expert gets at least
// kShareForAll divided by the number of experts, and a row finds enough distinct experts even if
// few were chosen in the recorded run.
constexpr double kShareForAll = 1e-3;

// Returns the cumulative shares of draws: entry i is the sum of the shares of experts 0 to i. The
// last entry is 1.
std::vector<float> shares_of(const ExpertCounts::Layer& layer) {
  const auto num_experts = static_cast<double>(layer.rows.size());
  const auto total =
      static_cast<double>(std::accumulate(layer.rows.begin(), layer.rows.end(), int64_t{0}));
  std::vector<float> shares;
  double sum = 0;
  for (const int64_t rows : layer.rows) {
    const double counted = total > 0 ? static_cast<double>(rows) / total : 1 / num_experts;
    sum += (1 - kShareForAll) * counted + kShareForAll / num_experts;
    shares.push_back(static_cast<float>(sum));
  }
  shares.back() = 1;
  return shares;
}

std::vector<int> routers_of(const ir::Graph& graph) {
  std::vector<int> routers;
  for (int i = 0; i < graph.num_nodes(); ++i) {
    if (is_router(graph.nodes()[i])) routers.push_back(i);
  }
  return routers;
}

void draw_experts(passes::Program& program, std::optional<ir::ValueId> shares) {
  ir::Graph& graph = program.graph;
  const std::optional<ir::ValueId> clock = graph.find_value("step_clock");
  if (!clock) return;
  int64_t layer = 0;
  for (const int index : routers_of(graph)) {
    ir::Node& node = graph.node(ir::NodeId{index});
    node.inputs.add("step_clock", *clock, true);
    if (shares) node.inputs.add("shares", *shares, true);
    node.attrs.set("drawn", ++layer);
  }
}

void draw_uniformly(passes::Program& program, const ir::OpSet& /*ops*/) {
  draw_experts(program, std::nullopt);
}

void draw_by_shares(passes::Program& program, const ir::OpSet& /*ops*/) {
  ir::Graph& graph = program.graph;
  const std::vector<int> routers = routers_of(graph);
  if (routers.empty()) return;
  const int64_t num_experts = num_experts_of(graph, graph.nodes()[routers[0]]);
  draw_experts(program, graph.add_value(ir::ValueKind::kPersistent, std::string(kShares),
                                        {DType::kF32, {std::ssize(routers), num_experts}}));
}

// Counts the distinct experts that the rows of one step draw.
int64_t num_drawn(const ir::Graph& graph, const ir::Node& router, const float* shares, int64_t rows,
                  int32_t step) {
  const auto num_experts = static_cast<int>(num_experts_of(graph, router));
  const auto drawn = static_cast<int>(router.attrs.get_int("drawn"));
  std::set<int> experts;
  for (int64_t row = 0; row < rows; ++row) {
    std::set<int> of_row;
    for (int k = 0; k < router.attrs.get_int("top_k"); ++k) {
      const auto draw = [&](int attempt) {
        return drawn_expert(drawn, step, row, k, attempt, num_experts, shares);
      };
      int attempt = 0;
      while (!of_row.insert(draw(attempt)).second)
        ++attempt;
    }
    experts.merge(of_row);
  }
  return std::ssize(experts);
}

}  // namespace

passes::Pass drawn_experts_pass() {
  return {.name = "draw_experts",
          .what = "experts drawn at random in the place of those that rows choose",
          .run = draw_uniformly};
}

passes::Pass recorded_experts_pass() {
  return {.name = "draw_recorded_experts",
          .what = "experts drawn as often as they were chosen in a recorded run",
          .run = draw_by_shares};
}

void draw_by(const ExpertCounts& counts, runtime::LoadedProgram& loaded) {
  const TensorView shares = loaded.persistent.find(kShares);
  if (shares.data == nullptr)
    fail(ErrorKind::kUsage, "the model has no experts that rows could draw");
  std::vector<float> all;
  for (const ExpertCounts::Layer& layer : counts.layers) {
    const std::vector<float> of_layer = shares_of(layer);
    all.insert(all.end(), of_layer.begin(), of_layer.end());
  }
  const auto fits = [&](const ExpertCounts::Layer& layer) {
    return std::ssize(layer.rows) == shares.shape[1];
  };
  if (std::ssize(counts.layers) != shares.shape[0] || !std::ranges::all_of(counts.layers, fits)) {
    fail(ErrorKind::kUsage,
         "the counts of experts are those of another model: this one has {} layers of {} experts",
         shares.shape[0], shares.shape[1]);
  }
  loaded.stream.copy_to_device(shares.data, all.data(), shares.num_bytes());
  loaded.stream.synchronize();
}

std::optional<DistinctExperts> distinct_experts(const ir::Graph& graph, int64_t rows,
                                                int64_t num_steps, const ExpertCounts* counts) {
  DistinctExperts distinct;
  double num_layers = 0;
  double drawn = 0;
  for (const ir::Node& node : graph.nodes()) {
    if (node.op->name == "expert_mlp") {
      distinct.num_experts = graph.value(node.inputs["gate_up"]).type.dims[0].value;
      distinct.expected += planning::weight_share(graph, node, {rows, rows}) *
                           static_cast<double>(distinct.num_experts);
      ++num_layers;
    }
    if (!is_router(node) || node.inputs.find("step_clock") == nullptr) continue;
    std::vector<float> shares;
    if (counts != nullptr)
      shares = shares_of(counts->layers.at(static_cast<size_t>(node.attrs.get_int("drawn") - 1)));
    const float* const by_expert = counts != nullptr ? shares.data() : nullptr;
    for (int64_t step = 0; step < num_steps; ++step) {
      drawn +=
          static_cast<double>(num_drawn(graph, node, by_expert, rows, static_cast<int32_t>(step)));
    }
  }
  if (num_layers == 0) return std::nullopt;
  distinct.expected /= num_layers;
  if (drawn > 0) distinct.drawn = drawn / num_layers / static_cast<double>(num_steps);
  return distinct;
}

}  // namespace encore::measure
