// Traces a model: each call appends one node to a graph. Model code reads like the paper:
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

// Appends nodes to a graph. Errors: every method throws kCompile, naming the op, when its inputs do
// not fit.
// Lifetime: refers to the graph, and to the op set that the graph's nodes point to.
class Builder {
 public:
  Builder(ir::Graph& graph, const ir::OpSet& ops) : graph_(graph), ops_(ops) {}

  // Looks up the rows of `table` for `ids`. If the table is a rank's share of a larger table,
  // `first_row` is its first row in the larger table.
  ValueId embedding(ValueId ids, ValueId table, ValueId fill,
                    std::optional<ValueId> last_tokens = std::nullopt, double scale = 1,
                    std::optional<int64_t> first_row = std::nullopt);
  // Holds the weight [O,I] by which a linear multiplies x: floats, or codes in fp8 with their
  // scales.
  struct Matrix {
    // NOLINTNEXTLINE(google-explicit-constructor): a value of floats is one
    Matrix(ValueId weight) : weight(weight) {}
    Matrix(ValueId codes, ValueId scale, std::optional<int64_t> fp8_rows,
           std::optional<double> x_scale = std::nullopt)
        : weight(codes), scale(scale), fp8_rows(fp8_rows), x_scale(x_scale) {}

    ValueId weight;
    std::optional<ValueId> scale;
    std::optional<int64_t> fp8_rows;  // x is rounded to fp8 if it has at least this many rows
    // `x_scale` is the static scale by which x is rounded to fp8. Absent: each row of x has its own
    // scale.
    std::optional<double> x_scale;
  };
  // Holds the weights A and B of adapters (LoRA), with a part for each adapter slot, and the
  // adapter slot of each row of x; see `linear` in ops.cc.
  struct Lora {
    ValueId a;
    ValueId b;
    ValueId adapters;
  };
  ValueId linear(ValueId x, const Matrix& matrix, std::optional<ValueId> bias = std::nullopt,
                 const std::optional<Lora>& lora = std::nullopt);
  // Appends a linear whose output has the dtype `out`, such as logits in f32.
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
  // Holds the values that say where each sequence's queries and KV are; see `attention` in ops.cc.
  struct Batch {
    ValueId page_table;
    ValueId kv_lens;
    ValueId query_starts;
  };
  // Holds the rules by which attention's scores become weights; see `attention` in ops.cc.
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
    int64_t least = 0;  // row r is live where live[r] >= least
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
  // all_reduce adds up the x of all ranks; all_gather puts the columns of their x side by side.
  // Error messages name the result by the text `of`.
  ValueId all_reduce(ValueId x, const std::string& of, int64_t ranks);
  ValueId all_gather(ValueId x, const std::string& of, int64_t ranks);
  // Gathers as all_gather() does, and gives all ranks the same number of the step up to which a
  // burst runs.
  struct Gathered {
    ValueId y;
    ValueId run_until;
  };
  Gathered all_gather(ValueId x, const std::string& of, int64_t ranks, ValueId ring_marks);
  // Gathers as all_gather() does, but each rank's result begins with its own columns.
  ValueId all_gather_own_first(ValueId x, const std::string& of, int64_t ranks);
  ValueId first_columns(ValueId x, int64_t count);
  // Takes the rows `rows` of x and of the residual.
  std::pair<ValueId, ValueId> gather_rows(ValueId x, ValueId residual, ValueId rows);

  // Appends an op of the set by its name and returns its outputs. It serves ops with many operands,
  // and ops that a user adds to Encore's op set.
  Values call(const std::string& op, const Values& inputs, ir::Attrs attrs = {},
              const std::string& name = "v");

  [[nodiscard]] ir::Graph& graph() { return graph_; }

 private:
  ir::Graph& graph_;
  const ir::OpSet& ops_;
};

}  // namespace encore::model
