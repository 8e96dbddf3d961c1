// Computes the least time that a step can take from the bytes that each op must move, the
// operations that it must compute, and the best rates of the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "ir/graph.h"

namespace encore::planning {

// Holds the least memory traffic and arithmetic of one step, without the KV that attention reads.
// Units: bytes, operations.
struct StepCost {
  int64_t bytes = 0;
  int64_t flops = 0;
  int64_t weight_bytes = 0;  // part of `bytes`: weights read, only of chosen experts
};
// Returns the least cost of a step. `distinct_experts` is the number of different experts that the
// rows of a layer choose. Where it is absent, op_cost() estimates it.
StepCost step_cost(const ir::Graph& graph, const ir::Sizes& sizes,
                   std::optional<double> distinct_experts = std::nullopt);

// Holds the best rates that a device reaches.
struct Rates {
  double bytes_per_s = 0;  // read bandwidth, measured in the same run; 0: not measured
  double flops_per_s = 0;  // sustained matrix products; 0: unknown, so only bytes count
};
// Returns the rates of a device. A GPU has the measured bandwidth `read_bandwidth` and the FLOP/s
// of an H200. On the CPU this function measures the rates. `bytes` is the number of bytes of a
// step, over which the CPU's bandwidth is measured because they may lie in its caches. Where
// `bytes` is absent, the CPU has `read_bandwidth` too.
Rates rates(Device& device, double read_bandwidth, std::optional<int64_t> bytes);
// Returns the rule in words: "bytes / 4.58 TB/s or FLOPs / 690 TFLOP/s, whichever takes longer".
std::string rates_text(const Rates& rates);

// Counts the work of attention for all sequences of a step together.
struct KvWork {
  int64_t tokens = 0;  // tokens whose K and V attention reads
  int64_t pairs = 0;   // pairs of a query and a token that it attends to

  // Returns the work of `count` new tokens behind `past` earlier tokens of a sequence. Each new
  // token attends to itself and all tokens before it.
  static KvWork of(int64_t past, int64_t count) {
    return {past + count, past * count + count * (count + 1) / 2};
  }
  // Returns the work of sequences that decode one token each. `tokens` is the sum of their lengths.
  static KvWork decode(int64_t tokens) { return {tokens, tokens}; }
  friend KvWork operator+(const KvWork& a, const KvWork& b) {
    return {a.tokens + b.tokens, a.pairs + b.pairs};
  }
};

struct NodeFloor {
  // `group` is the name under which nodes are reported together: the op's name, and for a linear
  // also its weight's shape.
  std::string group;
  int64_t bytes = 0;
  int64_t weight_bytes = 0;  // part of `bytes`: weights, only of chosen experts
  int64_t kv_bytes = 0;      // part of `bytes`: the KV that attention reads
  int64_t flops = 0;
  double us = 0;  // the longer of the time for bytes and the time for FLOPs
};

// Returns the number of bytes that all nodes read and write together.
int64_t total_bytes(const std::vector<NodeFloor>& nodes);

// Returns the least time and work of each node of the graph. Views take no time.
std::vector<NodeFloor> node_floors(const ir::Graph& graph, const ir::Sizes& sizes, const KvWork& kv,
                                   const Rates& rates);
// Returns the sum of the nodes' least times. Units: microseconds.
double floor_us(const std::vector<NodeFloor>& nodes);

// Holds the least time of a whole step and its parts, by the limit of each op. An op whose bytes
// take longer than its FLOPs counts as reads and writes; any other op counts as compute. Units:
// microseconds.
struct StepFloor {
  double us = 0;  // sum of the four times that follow
  double weights_us = 0;
  double kv_us = 0;
  double activations_us = 0;
  double compute_us = 0;

  int64_t weight_bytes = 0;
  int64_t flops = 0;
  double all_flops_us = 0;  // time for all FLOPs, including ops that reads limit
};
StepFloor step_floor(const std::vector<NodeFloor>& nodes, const Rates& rates);

}  // namespace encore::planning
