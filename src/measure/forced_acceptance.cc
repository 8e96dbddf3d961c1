#include "measure/forced_acceptance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace encore::measure {
namespace {

constexpr std::string_view kDraftAcceptance = "draft_acceptance";
constexpr int64_t kMostRates = 16;

void force(passes::Program& program, const ir::OpSet& /*ops*/) {
  ir::Graph& graph = program.graph;
  for (int i = 0; i < graph.num_nodes(); ++i) {
    ir::Node& node = graph.node(ir::NodeId{i});
    if (node.op->name != "advance") continue;
    const ir::ValueId rates = graph.add_value(
        ir::ValueKind::kPersistent, std::string(kDraftAcceptance), {DType::kF32, {kMostRates}});
    node.inputs.add("acceptance", rates, true);
  }
}

}  // namespace

passes::Pass forced_acceptance_pass() {
  return {.name = "force_acceptance",
          .what = "drafts that are right as often as a benchmark wants",
          .run = force};
}

void force_acceptance(std::span<const double> rates, runtime::LoadedProgram& loaded) {
  double before = 1;
  for (const double rate : rates) {
    if (rate >= 0 && rate <= before) {
      before = rate;
      continue;
    }
    fail(ErrorKind::kUsage,
         "an acceptance rate of {}: rates are from 0 to 1, and none is above the one before it, as "
         "each "
         "says how often all drafts up to it are right",
         rate);
  }
  const TensorView acceptance = loaded.persistent.find(kDraftAcceptance);
  if (acceptance.data == nullptr)
    fail(ErrorKind::kUsage, "the program was compiled without forced acceptance");
  std::vector<float> all(static_cast<size_t>(acceptance.shape[0]));
  std::copy_n(rates.begin(), std::min(rates.size(), all.size()), all.begin());
  loaded.stream.copy_to_device(acceptance.data, all.data(), acceptance.num_bytes());
  loaded.stream.synchronize();
}

std::vector<double> rates_of_probability(double probability, int64_t num_drafts) {
  std::vector<double> rates;
  for (int64_t j = 1; j <= num_drafts; ++j)
    rates.push_back(std::pow(probability, static_cast<double>(j)));
  return rates;
}

std::vector<double> rates_of_length(double length, int64_t num_drafts) {
  std::vector<double> rates;
  for (int64_t j = 1; j <= num_drafts; ++j)
    rates.push_back(std::clamp(length - static_cast<double>(j), 0.0, 1.0));
  return rates;
}

double expected_tokens(std::span<const double> rates) {
  return std::accumulate(rates.begin(), rates.end(), 1.0);
}

}  // namespace encore::measure
