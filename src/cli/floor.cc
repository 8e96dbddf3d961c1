#include "cli/floor.h"

#include <algorithm>

#include <fmt/format.h>

namespace encore::cli {
namespace {

// cuBLAS on an H200 with random bf16 data, sustained: the card is at its power limit.
constexpr double kH200FlopsPerSecond = 690e12;

bool is_attention(const ir::Op& op) {
  return op.name == "attention" || op.name == "fused_attention";
}

// What the row's cost leaves out, because only the step knows the lengths.
ir::Cost kv_cost(const std::vector<ir::Type>& inputs, int64_t kv_tokens) {
  const ir::Type& queries = inputs[0];  // [T,H*C]
  // [P,K,S,C]
  const ir::Type& cache = *std::find_if(inputs.begin(), inputs.end(),
                                        [](const ir::Type& type) { return type.dims.size() == 4; });
  const int64_t kv_width = cache.dims[1].value * cache.dims[3].value;
  return {.bytes = 2 * kv_tokens * kv_width * size_of(cache.dtype),
          .flops = 4 * kv_tokens * queries.dims[1].value};
}

// Of a product of matrices: "[6144,4096]", outputs first.
std::string weight_shape(const ir::Graph& graph, const ir::Node& node) {
  for (const ir::ValueId input : node.inputs) {
    const ir::Value& value = graph.value(input);
    if (value.kind != ir::ValueKind::kWeight || value.type.dims.size() != 2) continue;
    return fmt::format(" [{},{}]", value.type.dims[0].value, value.type.dims[1].value);
  }
  return "";
}

}  // namespace

Rates rates(DeviceKind device, double read_bandwidth) {
  return {read_bandwidth, device == DeviceKind::kCuda ? kH200FlopsPerSecond : 0};
}

std::string rates_text(const Rates& rates) {
  if (rates.bytes_per_s <= 0) return "the read bandwidth was not measured";
  const bool is_tera = rates.bytes_per_s >= 1e12;
  std::string bytes = fmt::format("bytes / {:.3g} {}B/s",
                                  rates.bytes_per_s / (is_tera ? 1e12 : 1e9), is_tera ? 'T' : 'G');
  if (rates.flops_per_s <= 0) return bytes;
  return fmt::format("{} or FLOPs / {:.0f} TFLOP/s, whichever takes longer", bytes,
                     rates.flops_per_s / 1e12);
}

std::vector<NodeFloor> node_floors(const ir::Graph& graph, const ir::Sizes& sizes,
                                   int64_t kv_tokens, const Rates& rates) {
  std::vector<NodeFloor> floors;
  for (const ir::Node& node : graph.nodes()) {
    ir::Cost cost = ir::cost(graph, node, sizes);
    NodeFloor floor{node.op->name};
    if (cost.flops > 0) floor.group += weight_shape(graph, node);
    if (is_attention(*node.op)) {
      const ir::Cost kv = kv_cost(ir::input_types(graph, node), kv_tokens);
      cost.bytes += kv.bytes;
      cost.flops += kv.flops;
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

}  // namespace encore::cli
