// Computes the least time that a step can take: the bytes that each op must move and the operations
// it must compute, over the best rates of the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "ir/graph.h"

namespace encore::planning {

// Least memory traffic and arithmetic of one step, without the KV that attention reads. Units:
// bytes, operations.
struct StepCost {
  int64_t bytes = 0;
  int64_t flops = 0;
  int64_t weight_bytes = 0;  // of `bytes`: weights, of experts those that are chosen
};
// `distinct_experts`: of a layer, that its rows choose; absent: as many as op_cost() expects.
StepCost step_cost(const ir::Graph& graph, const ir::Sizes& sizes,
                   std::optional<double> distinct_experts = std::nullopt);

// The best rates that a device reaches.
struct Rates {
  double bytes_per_s = 0;  // reading, measured in the same run; 0: not measured
  double flops_per_s = 0;  // products of matrices, sustained; 0: not known, so bytes alone count
};
// The rates of a device. A GPU has the bandwidth that was measured and the FLOP/s of an H200. On
// the CPU both are measured now, the bandwidth over `bytes`, the bytes of a step, because they may
// lie in its caches; absent: they do not.
Rates rates(Device& device, double read_bandwidth, std::optional<int64_t> bytes);
// "bytes / 4.58 TB/s or FLOPs / 690 TFLOP/s, whichever takes longer".
std::string rates_text(const Rates& rates);

// The work of attention for all sequences of a step together.
struct KvWork {
  int64_t tokens = 0;  // whose K and V it reads
  int64_t pairs = 0;   // of a query and a token that it sees

  // The work of `count` new tokens behind `past` others: each sees those before it and itself.
  static KvWork of(int64_t past, int64_t count) {
    return {past + count, past * count + count * (count + 1) / 2};
  }
  // The work of sequences that decode one token each; `tokens` is the sum of their lengths.
  static KvWork decode(int64_t tokens) { return {tokens, tokens}; }
  friend KvWork operator+(const KvWork& a, const KvWork& b) {
    return {a.tokens + b.tokens, a.pairs + b.pairs};
  }
};

struct NodeFloor {
  std::string group;  // what is reported together: the op, of a linear with its weight's shape
  int64_t bytes = 0;
  int64_t weight_bytes = 0;  // of them, weights, of experts those that are chosen
  int64_t kv_bytes = 0;      // of them, what attention reads of the KV
  int64_t flops = 0;
  double us = 0;  // the longer of the two at the device's rates
};

// The bytes that the nodes read and write together.
int64_t total_bytes(const std::vector<NodeFloor>& nodes);

// The floor of each node; views take nothing.
std::vector<NodeFloor> node_floors(const ir::Graph& graph, const ir::Sizes& sizes, const KvWork& kv,
                                   const Rates& rates);
// The sum of the nodes' floors. Units: microseconds.
double floor_us(const std::vector<NodeFloor>& nodes);

// The least time of a whole step, by what limits it: ops whose bytes take longer than their FLOPs
// count as reads and writes, the others as compute. Units: microseconds.
struct StepFloor {
  double us = 0;  // the sum of the four
  double weights_us = 0;
  double kv_us = 0;
  double activations_us = 0;
  double compute_us = 0;

  int64_t weight_bytes = 0;
  int64_t flops = 0;
  double all_flops_us = 0;  // of the FLOPs alone, those beside longer reads too
};
StepFloor step_floor(const std::vector<NodeFloor>& nodes, const Rates& rates);

}  // namespace encore::planning
