#include "planning/floor.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "backend/cpu/device.h"
#include "planning/op_cost.h"

namespace encore::planning {
namespace {

// cuBLAS sustains this rate on an H200 with random bf16 data, where the card is at its power limit.
constexpr double kH200FlopsPerSecond = 690e12;

bool is_attention(const ir::Op& op) {
  return op.name == "attention" || op.name == "fused_attention";
}

// Returns the cost of reading KV. op_cost() leaves it out, because only the step knows the lengths.
// A window bounds it: the new tokens of a sequence attend to no more keys than those from the start
// of the first token's window to the end of the last token's.
OpCost kv_cost(const ir::Types& inputs, const ir::Attrs& attrs, const ir::Sizes& sizes, KvWork kv) {
  if (attrs.find("window") != nullptr) {
    const int64_t window = attrs.get_int("window");
    kv.tokens = std::min(kv.tokens, sizes.sequences * (window - 1) + sizes.tokens);
    kv.pairs = std::min(kv.pairs, sizes.tokens * window);
  }
  const ir::Type& queries = inputs["q"];      // [T,H*C]
  const ir::Type& cache = inputs["k_cache"];  // [P,K,S,C]
  const int64_t kv_width = cache.dims[1].value * cache.dims[3].value;
  return {.bytes = 2 * kv.tokens * kv_width * size_of(cache.dtype),
          .flops = 4 * kv.pairs * queries.dims[1].value};
}

// Returns whether the node belongs to a pass in which a draft model guesses.
bool is_of_guessing_pass(const ir::Graph& graph, const ir::Node& node) {
  return std::ranges::any_of(node.inputs, [&](ir::ValueId input) {
    return graph.value(input).type.rows() == ir::Symbol::kGuessing;
  });
}

int64_t weight_bytes(const ir::Graph& graph, const ir::Node& node, const ir::Sizes& sizes) {
  int64_t bytes = 0;
  for (const ir::ValueId input : node.inputs) {
    const ir::Value& value = graph.value(input);
    if (value.kind == ir::ValueKind::kWeight && !value.recipe.has_slots)
      bytes += value.type.num_bytes(sizes);
  }
  return std::llround(weight_share(graph, node, sizes) * static_cast<double>(bytes));
}

// Returns a rate as text, such as "26.9 GB/s". The unit is `what` per second.
std::string rate_text(double rate, const char* what) {
  const bool is_tera = rate >= 1e12;
  return fmt::format("{:.3g} {}{}/s", rate / (is_tera ? 1e12 : 1e9), is_tera ? 'T' : 'G', what);
}

// Returns the shape of a linear's weight, outputs first, such as " [6144,4096]". Returns "" for an
// op without a weight.
std::string weight_shape(const ir::Graph& graph, const ir::Node& node) {
  const ir::ValueId* weight = node.inputs.find("weight");
  if (weight == nullptr) return "";
  const ir::Type& type = graph.value(*weight).type;
  return fmt::format(" [{},{}]", type.dims[0].value, type.dims[1].value);
}

}  // namespace

Rates rates(Device& device, double read_bandwidth, std::optional<int64_t> bytes) {
  if (device.kind() == DeviceKind::kCuda) return {read_bandwidth, kH200FlopsPerSecond};
  auto& cpu = dynamic_cast<cpu::CpuDevice&>(device);
  return {bytes ? cpu.read_bandwidth(*bytes) : read_bandwidth, cpu.flops_per_s()};
}

int64_t total_bytes(const std::vector<NodeFloor>& nodes) {
  int64_t bytes = 0;
  for (const NodeFloor& node : nodes)
    bytes += node.bytes;
  return bytes;
}

std::string rates_text(const Rates& rates) {
  if (rates.bytes_per_s <= 0) return "the read bandwidth was not measured";
  const std::string bytes = "bytes / " + rate_text(rates.bytes_per_s, "B");
  if (rates.flops_per_s <= 0) return bytes;
  return fmt::format("{} or FLOPs / {}, whichever takes longer", bytes,
                     rate_text(rates.flops_per_s, "FLOP"));
}

std::vector<NodeFloor> node_floors(const ir::Graph& graph, const ir::Sizes& sizes, const KvWork& kv,
                                   const Rates& rates) {
  std::vector<NodeFloor> floors;
  for (const ir::Node& node : graph.nodes()) {
    OpCost cost = op_cost(graph, node, sizes);
    NodeFloor floor{node.op->name};
    if (cost.flops > 0) floor.group += weight_shape(graph, node);
    floor.weight_bytes = weight_bytes(graph, node, sizes);
    if (is_attention(*node.op)) {
      const OpCost attended = kv_cost(ir::types(graph, node.inputs), node.attrs, sizes, kv);
      floor.kv_bytes = attended.bytes;
      cost.bytes += attended.bytes;
      cost.flops += attended.flops;
    }
    floor.bytes = cost.bytes;
    floor.flops = cost.flops;
    if (rates.bytes_per_s > 0) {
      floor.us = static_cast<double>(cost.bytes) / rates.bytes_per_s * 1e6;
    }
    if (rates.flops_per_s > 0) {
      floor.us = std::max(floor.us, static_cast<double>(cost.flops) / rates.flops_per_s * 1e6);
    }
    floors.push_back(std::move(floor));
  }
  return floors;
}

double floor_us(const std::vector<NodeFloor>& nodes) {
  double sum = 0;
  for (const NodeFloor& node : nodes)
    sum += node.us;
  return sum;
}

StepFloor step_floor(const std::vector<NodeFloor>& nodes, const Rates& rates) {
  StepFloor floor;
  for (const NodeFloor& node : nodes) {
    floor.us += node.us;
    floor.weight_bytes += node.weight_bytes;
    floor.flops += node.flops;
    const double flops_us =
        rates.flops_per_s > 0 ? static_cast<double>(node.flops) / rates.flops_per_s * 1e6 : 0;
    floor.all_flops_us += flops_us;
    if (node.us <= flops_us || node.bytes == 0) {
      floor.compute_us += node.us;
      continue;
    }
    const double us_per_byte = node.us / static_cast<double>(node.bytes);
    floor.weights_us += us_per_byte * static_cast<double>(node.weight_bytes);
    floor.kv_us += us_per_byte * static_cast<double>(node.kv_bytes);
    floor.activations_us +=
        us_per_byte * static_cast<double>(node.bytes - node.weight_bytes - node.kv_bytes);
  }
  return floor;
}

StepCost step_cost(const ir::Graph& graph, const ir::Sizes& sizes,
                   std::optional<double> distinct_experts) {
  StepCost total;
  std::set<ir::ValueId> weights;
  for (const ir::Node& node : graph.nodes()) {
    const OpCost cost = op_cost(graph, node, sizes);
    total.bytes += cost.bytes;
    total.flops += cost.flops;
    const double expected = weight_share(graph, node, sizes);
    double share = expected;
    if (distinct_experts && node.op->name == "expert_mlp") {
      const int64_t num_experts = graph.value(node.inputs["gate_up"]).type.dims[0].value;
      share = *distinct_experts / static_cast<double>(num_experts);
    }
    if (share == 0) continue;
    for (const ir::ValueId input : node.inputs) {
      const ir::Value& value = graph.value(input);
      if (value.kind != ir::ValueKind::kWeight) continue;
      const auto bytes = static_cast<double>(value.type.num_bytes(sizes));
      total.bytes += std::llround((share - expected) * bytes);
      // Each guessing pass of a draft model reads the draft model's weights again.
      const bool is_read_again = is_of_guessing_pass(graph, node);
      if (weights.insert(input).second || is_read_again)
        total.weight_bytes += std::llround(share * bytes);
    }
  }
  return total;
}

}  // namespace encore::planning
