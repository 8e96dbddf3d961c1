// What one launch of an op costs at given sizes.
#pragma once

#include "ir/graph.h"

namespace encore::measure {

struct OpCost {
  int64_t bytes = 0;  // least device-memory traffic: each input read once, each output written once
  int64_t flops = 0;
};

// The share of its weights that one launch of a node reads: less than all where rows choose.
double weight_share(const ir::Graph& graph, const ir::Node& node, const ir::Sizes& sizes);

// Of attention without the KV that it reads, which depends on lengths that only the step knows.
// Of experts, those that so many rows are expected to choose, each row its own at random. An op that
// op_cost.cc does not list reads and writes each operand once, and has no FLOPs.
OpCost op_cost(const ir::Graph& graph, const ir::Node& node, const ir::Sizes& sizes);

}  // namespace encore::measure
