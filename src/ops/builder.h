// Traces a model: each call appends one node. Model code reads like the paper:
//
//   auto h = b.rms_norm(x, w.input_norm, eps);
//   x = b.add(x, b.linear(attention(h), w.o_proj));
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"

namespace encore::ops {

using ir::ValueId;

// Errors: every method throws kCompile, naming the op, when its inputs do not fit.
// Lifetime: refers to the graph, and to the op set the graph's nodes will point to.
class Builder {
 public:
  Builder(ir::Graph& graph, const ir::OpSet& ops) : graph_(graph), ops_(ops) {}

  ValueId embedding(ValueId ids, ValueId table, ValueId fill,
                    std::optional<ValueId> last_tokens = std::nullopt);
  ValueId linear(ValueId x, ValueId weight, std::optional<ValueId> bias = std::nullopt);
  // A linear whose output has its own dtype: logits in f32.
  ValueId linear_as(DType out, ValueId x, ValueId weight);
  ValueId rms_norm(ValueId x, ValueId weight, double eps);
  ValueId add(ValueId a, ValueId b);
  ValueId mul(ValueId a, ValueId b);
  ValueId silu(ValueId x);
  ValueId rope(ValueId x, ValueId positions, ValueId inv_freq);
  struct Cache {
    ValueId k;
    ValueId v;
  };
  Cache kv_write(Cache cache, ValueId k, ValueId v, ValueId slots);
  // Where each sequence's queries and KV are; see `attention` in ops.h.
  struct Batch {
    ValueId page_table;
    ValueId kv_lens;
    ValueId query_starts;
  };
  ValueId attention(ValueId q, Cache cache, const Batch& batch, double scale);
  ValueId gather_rows(ValueId x, ValueId rows);
  // How each sequence's token is chosen; see `adjust_logits`, `sample` and `log_probs` in ops.h.
  struct Sampling {
    ValueId rows;
    ValueId kv_lens;
    ValueId stop_tokens;
    ValueId token_counts;
    ValueId token_bias;
    ValueId token_masks;
    ValueId step_clock;
    ValueId logprob_ring;
  };
  ValueId sample(ValueId logits, const Sampling& over);
  void log_probs(ValueId logits, ValueId next, ValueId sampling, ValueId clock, ValueId ring);
  // What a step changes for the next; see `advance` in ops.h.
  struct Advance {
    ValueId page_table;
    ValueId stop_tokens;
    ValueId max_lens;
    ValueId ids;
    ValueId positions;
    ValueId slots;
    ValueId kv_lens;
    ValueId last_tokens;
    ValueId step_clock;
    ValueId token_ring;
    ValueId ring_marks;
  };
  void advance(ValueId next, const Advance& over, int64_t page_size);

  // Any op of the set, by name: how an op from outside the library is used.
  std::vector<ValueId> call(const std::string& op, std::vector<ValueId> inputs,
                            ir::Attrs attrs = {}, const std::string& name = "v");

  [[nodiscard]] ir::Graph& graph() { return graph_; }

 private:
  ir::Graph& graph_;
  const ir::OpSet& ops_;
};

}  // namespace encore::ops
