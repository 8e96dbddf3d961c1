// Executes weight recipes: from checkpoint tensors, constants or random numbers to device memory.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/device.h"
#include "ir/graph.h"
#include "model/checkpoint.h"

namespace encore::model {

// All weights of a graph in one piece of device memory.
struct Weights {
  Memory memory;
  std::vector<TensorView> views;  // by ValueId::index of the graph
};

// Streams the checkpoint's tensors to the device, casting where the graph's dtype differs, with
// progress. Errors: kModel on a missing tensor or wrong shape, before anything is copied; kMemory.
Weights load_weights(const ir::Graph& graph, const Checkpoint& checkpoint, Device& device);

// Seeded random weights of a trained model's magnitude: matrices normal(0, 0.02), norms one, biases
// normal(0, 0.02). The same numbers whatever the passes did to the recipes is not promised.
Weights random_weights(const ir::Graph& graph, Device& device, uint64_t seed = 1);

}  // namespace encore::model
