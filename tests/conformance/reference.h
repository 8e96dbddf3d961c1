// Computes every op in double precision, by the plainest loops: written from ops.cc alone, and
// independent of every kernel.
#pragma once

#include <optional>
#include <vector>

#include "base/tensor.h"
#include "ir/type.h"

namespace encore::conformance {

// A tensor on the host: its values, each a number of its dtype.
struct HostTensor {
  ir::Type type;
  Shape shape;
  std::vector<double> values;
  int64_t row_gap = 0;  // Units: elements between rows, on the device

  [[nodiscard]] int64_t num_rows() const { return shape[0]; }
  [[nodiscard]] int64_t row_elements() const { return shape.num_elements_from(1); }
  [[nodiscard]] double* row(int64_t i) { return values.data() + i * row_elements(); }
  [[nodiscard]] const double* row(int64_t i) const { return values.data() + i * row_elements(); }
  [[nodiscard]] int64_t integer(int64_t i) const {
    return static_cast<int64_t>(values[static_cast<size_t>(i)]);
  }
};

// The number of `dtype` nearest to `value`.
double round_to(DType dtype, double value);

namespace reference {

// Results are not rounded, except where ops.cc says that the op itself rounds.
HostTensor embedding(const HostTensor& ids, const HostTensor& table, double fill, double scale = 1);
HostTensor linear(const HostTensor& x, const HostTensor& weight, const HostTensor* bias);
// Rows whose slot is -1 are zero.
HostTensor lora_shrink(const HostTensor& x, const HostTensor& a, const HostTensor& adapters);
// `blocks`: columns of each; empty: one of all.
HostTensor lora_expand(const HostTensor& base, const HostTensor& h, const HostTensor& b,
                       const HostTensor& adapters, const std::vector<int64_t>& blocks);
// The numbers that a weight in fp8 stands for: scale has a number for each row, or for each block of
// 128 x 128.
HostTensor scaled(const HostTensor& weight, const HostTensor& scale);
// The numbers that codes of experts [E,O,I] stand for: of each expert `num_matrices` matrices, one below
// the other. scale: for each row [E,O], or for each block of 128 x 128 of each matrix.
HostTensor scaled_experts(const HostTensor& weight, const HostTensor& scale, int64_t num_matrices);
// Returns activations as they are once they are rounded to fp8.
HostTensor in_fp8(const HostTensor& x, float static_scale = 0);
// The experts of each row and their weights; -1 and 0 where live[r] < least.
struct Routed {
  HostTensor experts;
  HostTensor weights;
};
struct Routing {
  int64_t top_k = 1;
  bool renormalize = true;
  int64_t least = 0;
  bool sigmoid = false;
  int64_t groups = 1;
  int64_t groups_kept = 1;
  double factor = 1;
};
Routed route(const HostTensor& logits, const HostTensor& live, const HostTensor* bias,
             const Routing& routing);
// The products of gate and up are rounded to x's dtype.
HostTensor expert_mlp(const HostTensor& x, const Routed& routed, const HostTensor& gate_up,
                      const HostTensor& down);
HostTensor rms_norm(const HostTensor& x, const HostTensor& weight, double eps, double offset = 0);
HostTensor add(const HostTensor& a, const HostTensor& b);
HostTensor mul(const HostTensor& a, const HostTensor& b);
HostTensor silu(const HostTensor& x);
HostTensor gelu_tanh(const HostTensor& x);
HostTensor softcap(const HostTensor& x, double cap);
HostTensor rope(const HostTensor& x, const HostTensor& positions, const HostTensor& inv_freq);
HostTensor gather_rows(const HostTensor& x, const HostTensor& rows);
// The cache after the write; rounded where it is of another dtype than x.
HostTensor kv_write(HostTensor cache, const HostTensor& x, const HostTensor& slots);

// A row of attention's output: numbers, or nothing where the op leaves the row as it is.
struct AttentionInputs {
  const HostTensor& q;
  const HostTensor& k_cache;
  const HostTensor& v_cache;
  const HostTensor& page_table;
  const HostTensor& kv_lens;
  const HostTensor& query_starts;
  double scale = 1;
  int uniform_q = 0;
  std::optional<int64_t> window = {};
  std::optional<double> softcap = {};
  const HostTensor* sinks = nullptr;
};
std::vector<std::optional<std::vector<double>>> attention(const AttentionInputs& in);

// One row of sample.
struct SampleRow {
  const double* logits = nullptr;
  int64_t num_logits = 0;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double typical_p = 1;
  int64_t seed = 0;
  int64_t kv_len = 0;
};
// Tokens that may win. A positive `slack` widens the thresholds by that much, a negative one
// narrows them: rounding may put a token that lies on a threshold on either side. Where that leaves
// open what typical_p chooses among, it gives all of that or nothing.
std::vector<bool> kept_tokens(const SampleRow& row, double slack);
// Score of every token: logit / temperature + noise.
std::vector<double> scores(const SampleRow& row);
// softmax(logits / temperature)
std::vector<double> probabilities(const SampleRow& row);

}  // namespace reference
}  // namespace encore::conformance
