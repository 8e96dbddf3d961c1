// Computes every op in double precision by the plainest loops. It follows ops.cc alone and no
// kernel.
#pragma once

#include <optional>
#include <vector>

#include "base/tensor.h"
#include "ir/type.h"

namespace encore::conformance {

// Holds a tensor on the host; each value is a number of its dtype.
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

// Returns the number of `dtype` that is nearest to `value`.
double round_to(DType dtype, double value);

namespace reference {

// All functions of this namespace return results that are not rounded, except where ops.cc says
// that the op itself rounds.
HostTensor embedding(const HostTensor& ids, const HostTensor& table, double fill, double scale = 1);
HostTensor linear(const HostTensor& x, const HostTensor& weight, const HostTensor* bias);
// Computes lora_shrink. Rows whose adapter slot is -1 are zero.
HostTensor lora_shrink(const HostTensor& x, const HostTensor& a, const HostTensor& adapters);
// Computes lora_expand. `blocks` holds the columns of each merged part; if empty, all columns are
// one part.
HostTensor lora_expand(const HostTensor& base, const HostTensor& h, const HostTensor& b,
                       const HostTensor& adapters, const std::vector<int64_t>& blocks);
// Returns the numbers that a weight in fp8 stands for. `scale` has a number for each row, or for
// each block of 128 x 128.
HostTensor scaled(const HostTensor& weight, const HostTensor& scale);
// Returns the numbers that the codes of experts [E,O,I] stand for. Each expert has `num_matrices`
// matrices, one below the other. `scale` has a number for each row [E,O], or for each block of 128
// x 128 of each matrix.
HostTensor scaled_experts(const HostTensor& weight, const HostTensor& scale, int64_t num_matrices);
// Returns activations as they are after rounding to fp8.
HostTensor in_fp8(const HostTensor& x, float static_scale = 0);
// Holds, for each row, the ids of its experts and their weights. In rows where live[r] < least, the
// ids are -1 and the weights are 0.
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
// Computes expert_mlp. Each product of silu(gate) and up is rounded to x's dtype.
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
// Returns the cache after the rows of x are written to their slots. Numbers are rounded to the
// cache's dtype where x has another.
HostTensor kv_write(HostTensor cache, const HostTensor& x, const HostTensor& slots);

// Holds the inputs of attention. attention() returns each row of the output, or nothing for a row
// that the op leaves untouched.
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

// Holds the inputs of one row of `sample`.
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
// Returns which tokens may win. A positive `slack` widens the thresholds by that much and a
// negative one narrows them, because rounding may put a token that lies on a threshold on either
// side. If the slack leaves open which tokens typical_p chooses among, returns all tokens of the
// wider choice for a positive slack and no tokens for a negative one.
std::vector<bool> kept_tokens(const SampleRow& row, double slack);
// Returns the score of every token: logit / temperature + noise.
std::vector<double> scores(const SampleRow& row);
// Returns softmax(logits / temperature).
std::vector<double> probabilities(const SampleRow& row);

}  // namespace reference
}  // namespace encore::conformance
