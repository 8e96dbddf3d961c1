// Finds the nodes of a program that choose experts: `route` and `fused_route`.
#pragma once

#include "ir/graph.h"

namespace encore::measure {

inline bool is_router(const ir::Node& node) {
  return node.op->name == "route" || node.op->name == "fused_route";
}

inline int64_t num_experts_of(const ir::Graph& graph, const ir::Node& router) {
  if (router.op->name == "fused_route")
    return graph.value(router.inputs["weight"]).type.dims[0].value;
  return graph.value(router.inputs["logits"]).type.dims[1].value;
}

}  // namespace encore::measure
