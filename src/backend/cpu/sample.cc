// Sampling: one token per row of logits.
//
// The scale of a row is z = (logit - largest logit) / temperature, so that p is exp(z) over its
// sum, the largest p belongs to z = 0, and nothing overflows. top_k, top_p and min_p each say which
// z is too small; a token is kept if its z is at least the largest of the three bounds. top_p is a
// share of what top_k keeps.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "backend/sampling.h"

namespace encore::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLeastTemperature = std::numeric_limits<float>::min();  // greedy below

int32_t first_index_of(const float* logits, int64_t n, float value) {
  const float* found = std::find(logits, logits + n, value);
  return found == logits + n ? 0 : static_cast<int32_t>(found - logits);
}

// The sum of the likelihoods exp(z) of `count` numbers, added in double.
double sum_of_likelihoods(const float* z, int64_t count) {
  constexpr int64_t kChunk = 256;
  float likelihood[kChunk];
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t n = std::min(kChunk, count - begin);
    std::copy_n(z + begin, n, likelihood);
    simd().exp(likelihood, n);
    sum = std::accumulate(likelihood, likelihood + n, sum);
  }
  return sum;
}

// The bound of top_p: the smallest z of the shortest run of most likely candidates whose sum
// reaches the share `top_p` of that of all. Reorders `z`, which holds the candidates.
float top_p_bound(float* z, int64_t count, float top_p) {
  const double target = sum_of_likelihoods(z, count) * std::max(0.0F, top_p);
  // Sorting a few candidates usually suffices; when their sum falls short, sort more.
  for (int64_t sorted = std::min<int64_t>(256, count);; sorted = std::min(sorted * 16, count)) {
    if (sorted < count) std::nth_element(z, z + sorted - 1, z + count, std::greater<>());
    if (sorted < count && sum_of_likelihoods(z, sorted) < target) continue;
    std::sort(z, z + sorted, std::greater<>());
    double sum = 0;
    for (int64_t i = 0; i < sorted; ++i) {
      sum += sum_of_likelihoods(z + i, 1);
      if (sum >= target) return z[i];
    }
    if (sorted == count) return z[count - 1];
  }
}

// The smallest z that is kept. `z` has -infinity where the logit is not a number.
float smallest_kept(const float* z, int64_t n, const SamplingParams& params) {
  const bool by_k = params.top_k > 0 && params.top_k < n;
  const bool by_p = params.top_p < 1.0F;
  float bound = kLowest;
  if (params.min_p > 0) bound = std::min(0.0F, std::log(params.min_p));
  if (!by_k && !by_p) return bound;

  float* candidates = thread_buffer(Buffer::kSecond, n);
  std::copy_n(z, n, candidates);
  int64_t count = n;
  if (by_k) {
    std::nth_element(candidates, candidates + params.top_k - 1, candidates + n, std::greater<>());
    const float kth = candidates[params.top_k - 1];
    bound = std::max(bound, kth);
    count =
        std::partition(candidates, candidates + n, [&](float v) { return v >= kth; }) - candidates;
  }
  if (by_p) bound = std::max(bound, top_p_bound(candidates, count, params.top_p));
  return bound;
}

int32_t sample_row(const float* logits, int64_t n, const SamplingParams& params, int32_t kv_len) {
  const float largest = simd().max_number(logits, n);
  // Greedy, or nothing to choose by: no number at all, or an infinite one.
  if (!(params.temperature >= kLeastTemperature) || !std::isfinite(largest))
    return first_index_of(logits, n, largest);

  float* z = thread_buffer(Buffer::kFirst, n);
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = (logits[i] - largest) / params.temperature;
    z[i] = scaled <= 0 ? scaled : kLowest;  // NaN to -infinity
  }
  const float bound = smallest_kept(z, n, params);
  const int64_t num_blocks = (n + 3) / 4;
  float* noise = thread_buffer(Buffer::kThird, 4 * num_blocks);
  simd().gumbels(params.seed, kv_len, num_blocks, noise);
  float best = kLowest;
  int64_t winner = -1;
  for (int64_t i = 0; i < n; ++i) {
    const float score = z[i] + noise[i];
    if (z[i] >= bound && score > best) {
      best = score;
      winner = i;
    }
  }
  return winner < 0 ? first_index_of(logits, n, largest) : static_cast<int32_t>(winner);
}

}  // namespace

void sample(Pool& pool, const KernelArgs& args) {
  const TensorView& given = args.inputs["logits"];
  const TensorView& adjusted = args.inputs["adjusted"];
  const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
  const auto* const kv_lens = args.inputs["kv_lens"].as<int32_t>();
  const TensorView& token_counts = args.inputs["token_counts"];
  auto* const tokens = args.outputs["next"].as<int32_t>();
  pool.parallel_for(given.num_rows(), 1, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const SamplingRow& row = sampling[b];
      const TensorView& logits = row.adjusts(kv_lens[b]) ? adjusted : given;
      tokens[b] = sample_row(logits.row<float>(b), logits.shape[1], row.params, kv_lens[b]);
      if (row.state >= 0 && kv_lens[b] > 0) ++token_counts.row<int32_t>(row.state)[tokens[b]];
    }
  });
}

}  // namespace encore::cpu
