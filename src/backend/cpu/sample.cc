// Sampling: one token per row of logits.
#include <array>

#include "backend/cpu/distribution.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "backend/sampling.h"
#include "base/rounding.h"

namespace encore::cpu {
namespace {

int32_t sample_row(const float* logits, int64_t n, const SamplingParams& params, int32_t kv_len) {
  if (const auto token = certain_token(logits, n, params)) return *token;
  float* const z = thread_buffer(Buffer::kFirst, n);
  const Kept kept = scale_logits(logits, n, params, z);
  const int64_t num_blocks = div_up(n, 4);
  float* noise = thread_buffer(Buffer::kThird, 4 * num_blocks);
  simd().gumbels(params.seed, kv_len, random::Purpose::kSample, num_blocks, noise);
  float best = kLowest;
  int64_t winner = -1;
  for (int64_t i = 0; i < n; ++i) {
    const float score = z[i] + noise[i];
    if (kept.has(z[i]) && score > best) {
      best = score;
      winner = i;
    }
  }
  return winner < 0 ? likeliest_token(logits, n) : static_cast<int32_t>(winner);
}

void sample(Pool& pool, const KernelArgs& args) {
  const TensorView& given = args.inputs["logits"];
  const TensorView& adjusted = args.inputs["adjusted"];
  const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
  const auto* const kv_lens = args.inputs["kv_lens"].as<int32_t>();
  const TensorView& token_counts = args.inputs["token_counts"];
  auto* const tokens = args.outputs["next"].as<int32_t>();
  const int64_t rows_each = rows_of_each(args);
  pool.parallel_for(given.num_rows(), 1, [&](int64_t first, int64_t last) {
    for (int64_t l = first; l < last; ++l) {
      const SamplingRow& row = sampling[l / rows_each];
      const TensorView& logits = row.adjusts(kv_lens[l]) ? adjusted : given;
      tokens[l] = sample_row(logits.row<float>(l), logits.shape[1], row.params, kv_lens[l]);
      if (row.state >= 0 && kv_lens[l] > 0) ++token_counts.row<int32_t>(row.state)[tokens[l]];
    }
  });
}

}  // namespace

std::span<const Kernel> sample_kernels() {
  static constexpr std::array kRows = {
      row<"sample.cpu", sample>("sample"),
  };
  return kRows;
}

}  // namespace encore::cpu
