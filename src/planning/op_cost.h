// Computes the cost of one launch of an op at given sizes.
#pragma once

#include "ir/graph.h"

namespace encore::planning {

struct OpCost {
  int64_t bytes = 0;  // least traffic: each input is read once, each output written once
  int64_t flops = 0;
};

// Returns the share of its weights that one launch of a node reads, which is below 1 where rows
// choose experts.
double weight_share(const ir::Graph& graph, const ir::Node& node, const ir::Sizes& sizes);

// Returns the cost of a node. Attention is counted without the KV that it reads, which depends on
// lengths that only the step knows. For experts, the cost covers as many experts as the node's rows
// are expected to choose if each row chooses at random. An op that op_cost.cc does not list reads
// and writes each operand once, and has no FLOPs.
OpCost op_cost(const ir::Graph& graph, const ir::Node& node, const ir::Sizes& sizes);

}  // namespace encore::planning
