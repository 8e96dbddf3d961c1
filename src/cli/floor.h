// The least time that a step can take: what each op must move and compute, over what the device
// does best.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/device.h"
#include "ir/graph.h"

namespace encore::cli {

// What a device does best.
struct Rates {
  double bytes_per_s = 0;  // reading, measured in the same run; 0: not measured
  double flops_per_s = 0;  // products of matrices, sustained; 0: not known, so bytes alone count
};
Rates rates(DeviceKind device, double read_bandwidth);
// "bytes / 4.58 TB/s or FLOPs / 690 TFLOP/s, whichever takes longer".
std::string rates_text(const Rates& rates);

struct NodeFloor {
  std::string group;  // what is reported together: the op, of a linear with its weight's shape
  int64_t bytes = 0;
  int64_t flops = 0;
  double us = 0;  // the longer of the two at the device's rates
};

// By node; views take nothing. `kv_tokens`: tokens of all sequences together, whose K and V
// attention reads.
std::vector<NodeFloor> node_floors(const ir::Graph& graph, const ir::Sizes& sizes,
                                   int64_t kv_tokens, const Rates& rates);
// Their sum. Units: microseconds.
double floor_us(const std::vector<NodeFloor>& nodes);

}  // namespace encore::cli
