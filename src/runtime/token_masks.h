// Which tokens the sequences that are held to a grammar may get next: memory of the host that the
// device reads when it chooses their tokens. See `adjust_logits` in ops.h.
#pragma once

#include <cstdint>
#include <span>

#include "ir/graph.h"
#include "runtime/persistent_buffers.h"

namespace encore::runtime {

// Threads: one. Lifetime: refers to the memory of `persistent`.
class TokenMasks {
 public:
  // Of a graph that samples; of any other, it has no rows.
  TokenMasks(const ir::Graph& graph, const PersistentBuffers& persistent) {
    if (const auto masks = graph.find_value("token_masks")) masks_ = persistent.view(*masks);
  }

  // A bit a token. To be written while no launched step still has to choose the row's token.
  [[nodiscard]] std::span<uint32_t> row(int64_t row) const {
    ENCORE_CHECK(masks_.data != nullptr && row >= 0 && row < masks_.shape[0]);
    return {masks_.row<uint32_t>(row), static_cast<size_t>(masks_.shape[1])};
  }

 private:
  TensorView masks_;  // i32[M,V/32]
};

}  // namespace encore::runtime
