#include "measure/expert_counts.h"

#include <numeric>

#include "base/json.h"
#include "measure/routers.h"
#include "passes/rewrite.h"

namespace encore::measure {
namespace {

constexpr std::string_view kCounts = "expert_counts";
constexpr std::string_view kSteps = "expert_steps";

void count_experts(passes::Program& program, const ir::OpSet& ops) {
  ir::Graph& graph = program.graph;
  std::vector<int> routers;
  for (int i = 0; i < graph.num_nodes(); ++i) {
    if (is_router(graph.nodes()[i])) routers.push_back(i);
  }
  if (routers.empty()) return;
  const auto num_layers = std::ssize(routers);
  const int64_t num_experts = num_experts_of(graph, graph.nodes()[routers[0]]);
  const ir::Type counts_type{DType::kI32, {num_layers, num_experts, 2}};
  const ir::Type steps_type{DType::kI32, {num_layers}};
  ir::ValueId counts =
      graph.add_value(ir::ValueKind::kPersistent, std::string(kCounts), counts_type);
  ir::ValueId steps = graph.add_value(ir::ValueKind::kPersistent, std::string(kSteps), steps_type);
  passes::Rewrite rewrite(program);
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const int index = routers[static_cast<size_t>(layer)];
    ir::Node router = graph.nodes()[index];
    ir::Node count{ops.find("count_experts"), {}, {}, {{"layer", layer}}, {}};
    count.inputs = {{"experts", router.outputs["experts"]}, {"counts", counts}, {"steps", steps}};
    counts = graph.add_value(ir::ValueKind::kNode, "counted", counts_type);
    steps = graph.add_value(ir::ValueKind::kNode, "counted", steps_type);
    count.outputs = {{"counts", counts}, {"steps", steps}};
    rewrite.replace(index, {std::move(router), std::move(count)});
  }
  rewrite.commit();
}

// Returns the two buffers in which a program counts chosen experts: rows per expert, and steps per
// expert.
std::pair<TensorView, TensorView> buffers_of(const runtime::LoadedProgram& loaded) {
  const TensorView counts = loaded.persistent.find(kCounts);
  if (counts.data == nullptr)
    fail(ErrorKind::kUsage, "the model has no experts that could be counted");
  return {counts, loaded.persistent.find(kSteps)};
}

json::array to_json(const std::vector<int64_t>& numbers) {
  return json::array(numbers.begin(), numbers.end());
}

std::vector<int64_t> numbers_at(const json::Object& object, std::string_view key) {
  std::vector<int64_t> numbers;
  for (const json::value& number : object.array_at(key)) {
    if (!number.is_int64() || number.get_int64() < 0)
      fail(ErrorKind::kModel, "{}: key '{}' must hold counts", object.where(), key);
    numbers.push_back(number.get_int64());
  }
  return numbers;
}

}  // namespace

double ExpertCounts::distinct() const {
  double sum = 0;
  for (const Layer& layer : layers) {
    if (layer.num_steps == 0) continue;
    const auto chosen = std::accumulate(layer.steps.begin(), layer.steps.end(), int64_t{0});
    sum += static_cast<double>(chosen) / static_cast<double>(layer.num_steps);
  }
  return layers.empty() ? 0 : sum / static_cast<double>(layers.size());
}

passes::Pass count_experts_pass() {
  return {.name = "count_experts",
          .what = "how often each expert of a layer is chosen",
          .run = count_experts};
}

ExpertCounts read_expert_counts(runtime::LoadedProgram& loaded) {
  const auto [counts, steps] = buffers_of(loaded);
  std::vector<int32_t> pairs(static_cast<size_t>(counts.shape.num_elements()));
  std::vector<int32_t> num_steps(static_cast<size_t>(steps.shape.num_elements()));
  loaded.stream.copy_to_host(pairs.data(), counts.data, counts.num_bytes());
  loaded.stream.copy_to_host(num_steps.data(), steps.data, steps.num_bytes());
  loaded.stream.synchronize();
  ExpertCounts result;
  auto pair = pairs.begin();
  for (const int32_t of_layer : num_steps) {
    ExpertCounts::Layer layer{.num_steps = of_layer};
    for (int64_t e = 0; e < counts.shape[1]; ++e) {
      layer.rows.push_back(*pair++);
      layer.steps.push_back(*pair++);
    }
    result.layers.push_back(std::move(layer));
  }
  return result;
}

void clear_expert_counts(runtime::LoadedProgram& loaded) {
  const auto [counts, steps] = buffers_of(loaded);
  loaded.stream.fill(counts.data, 0, counts.num_bytes());
  loaded.stream.fill(steps.data, 0, steps.num_bytes());
  loaded.stream.synchronize();
}

std::string expert_counts_text(const ExpertCounts& counts) {
  json::array layers;
  for (const ExpertCounts::Layer& layer : counts.layers) {
    layers.push_back(json::object{{"steps", layer.num_steps},
                                  {"rows", to_json(layer.rows)},
                                  {"in_steps", to_json(layer.steps)}});
  }
  return json::to_text(json::object{{"distinct", counts.distinct()}, {"layers", layers}}) + "\n";
}

ExpertCounts parse_expert_counts(std::string_view text, const std::string& where) {
  const json::value parsed = json::parse(text, where);
  ExpertCounts counts;
  for (const json::value& item : json::Object(parsed, where).array_at("layers")) {
    const json::Object object(item, where + ": layers");
    ExpertCounts::Layer layer{.rows = numbers_at(object, "rows"),
                              .steps = numbers_at(object, "in_steps"),
                              .num_steps = object.int_at("steps")};
    if (layer.rows.empty() || layer.rows.size() != layer.steps.size()) {
      fail(ErrorKind::kModel, "{}: 'rows' and 'in_steps' must have a count for each expert",
           object.where());
    }
    counts.layers.push_back(std::move(layer));
  }
  return counts;
}

ExpertCounts read_expert_counts_file(const std::filesystem::path& path) {
  return parse_expert_counts(json::read_file(path), path.string());
}

}  // namespace encore::measure
