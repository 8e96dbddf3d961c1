// Traces a model: each call appends one node. Model code reads like the paper:
//
//   auto h = b.rms_norm(x, w.input_norm, eps);
//   x = b.add(x, b.linear(attention(h), w.o_proj));
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "ir/graph.h"

namespace encore::model {

using ir::ValueId;
using Values = ir::Operands<ValueId>;

// Errors: every method throws kCompile, naming the op, when its inputs do not fit.
// Lifetime: refers to the graph, and to the op set the graph's nodes will point to.
class Builder {
 public:
  Builder(ir::Graph& graph, const ir::OpSet& ops) : graph_(graph), ops_(ops) {}

  // `first_row`: of a table that is a rank's share.
  ValueId embedding(ValueId ids, ValueId table, ValueId fill,
                    std::optional<ValueId> last_tokens = std::nullopt, double scale = 1,
                    std::optional<int64_t> first_row = std::nullopt);
  // The weight of a product, [O,I]: floats, or codes in fp8 with their scales.
  struct Matrix {
    // NOLINTNEXTLINE(google-explicit-constructor): a value of floats is one
    Matrix(ValueId weight) : weight(weight) {}
    Matrix(ValueId codes, ValueId scale, std::optional<int64_t> fp8_rows,
           std::optional<double> x_scale = std::nullopt)
        : weight(codes), scale(scale), fp8_rows(fp8_rows), x_scale(x_scale) {}

    ValueId weight;
    std::optional<ValueId> scale;
    std::optional<int64_t> fp8_rows;  // from so many rows of x on, those are rounded to fp8
    std::optional<double> x_scale;    // by this static scale; absent: by scales of their own
  };
  // Room for adapters: see `linear` in ops.cc.
  struct Lora {
    ValueId a;
    ValueId b;
    ValueId adapters;
  };
  ValueId linear(ValueId x, const Matrix& matrix, std::optional<ValueId> bias = std::nullopt,
                 const std::optional<Lora>& lora = std::nullopt);
  // A linear whose output has its own dtype: logits in f32.
  ValueId linear_as(DType out, ValueId x, const Matrix& matrix);
  ValueId rms_norm(ValueId x, ValueId weight, double eps, double offset = 0);
  ValueId add(ValueId a, ValueId b);
  ValueId mul(ValueId a, ValueId b);
  ValueId silu(ValueId x);
  ValueId gelu_tanh(ValueId x);
  ValueId softcap(ValueId x, double cap);
  ValueId rope(ValueId x, ValueId positions, ValueId inv_freq);
  struct Cache {
    ValueId k;
    ValueId v;
  };
  Cache kv_write(Cache cache, ValueId k, ValueId v, ValueId slots);
  // The places of each sequence's queries and KV; see `attention` in ops.cc.
  struct Batch {
    ValueId page_table;
    ValueId kv_lens;
    ValueId query_starts;
  };
  // The rules by which scores become weights; see `attention` in ops.cc.
  struct Scores {
    double scale = 1;
    std::optional<int64_t> window = {};
    std::optional<double> softcap = {};
    std::optional<ValueId> sinks = {};
  };
  ValueId attention(ValueId q, Cache cache, const Batch& batch, const Scores& scores);
  // Says how the experts of a row are chosen; see `route` in ops.cc.
  struct Routing {
    int64_t top_k = 1;
    bool renormalize = false;
    int64_t least = 0;  // a row is live where live[r] is no less
    bool sigmoid = false;
    std::optional<ValueId> bias = {};
    int64_t groups = 1;
    int64_t groups_kept = 1;
    double factor = 1;
  };
  struct Routed {
    ValueId experts;
    ValueId weights;
  };
  Routed route(ValueId logits, ValueId live, const Routing& routing);
  ValueId expert_mlp(ValueId x, const Routed& routed, const Matrix& gate_up, const Matrix& down);
  // all_reduce adds up what all ranks have in x; all_gather puts their columns side by side. `of` names
  // the result in messages.
  ValueId all_reduce(ValueId x, const std::string& of, int64_t ranks);
  ValueId all_gather(ValueId x, const std::string& of, int64_t ranks);
  // Gathers as all_gather() does, and tells all ranks which step a burst runs until.
  struct Gathered {
    ValueId y;
    ValueId run_until;
  };
  Gathered all_gather(ValueId x, const std::string& of, int64_t ranks, ValueId ring_marks);
  // Gathers as all_gather() does, but puts the columns of the rank itself first.
  ValueId all_gather_own_first(ValueId x, const std::string& of, int64_t ranks);
  ValueId first_columns(ValueId x, int64_t count);
  // Takes the same rows of both.
  std::pair<ValueId, ValueId> gather_rows(ValueId x, ValueId residual, ValueId rows);

  // Appends any op of the set, and returns its outputs: for ops with many operands, or from outside
  // the library.
  Values call(const std::string& op, const Values& inputs, ir::Attrs attrs = {},
              const std::string& name = "v");

  [[nodiscard]] ir::Graph& graph() { return graph_; }

 private:
  ir::Graph& graph_;
  const ir::OpSet& ops_;
};

}  // namespace encore::model
