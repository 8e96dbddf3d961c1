// Sampling: one token per row of logits.
//
// The scale of a row is z = (logit - largest logit) / temperature, so that p is exp(z) over its
// sum, the largest p belongs to z = 0, and nothing overflows. Each parameter that says which tokens
// are kept bounds z further.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "backend/sampling.h"
#include "base/rounding.h"

namespace encore::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLeastTemperature = std::numeric_limits<float>::min();  // greedy below

int32_t first_index_of(const float* logits, int64_t n, float value) {
  const float* found = std::find(logits, logits + n, value);
  return found == logits + n ? 0 : static_cast<int32_t>(found - logits);
}

// A token that may be kept. Tokens with the smallest keys are kept.
struct Candidate {
  float key;
  float likelihood;  // exp(z)
};

double sum_of_likelihoods(std::span<const Candidate> candidates) {
  return std::accumulate(
      candidates.begin(), candidates.end(), 0.0,
      [](double sum, const Candidate& candidate) { return sum + candidate.likelihood; });
}

// The tokens of at least that z, with -z for their keys, in Buffer::kSecond.
std::span<Candidate> candidates_from(const float* z, int64_t n, float least) {
  auto* const first = reinterpret_cast<Candidate*>(thread_buffer(Buffer::kSecond, 2 * n));
  Candidate* end = first;
  constexpr int64_t kChunk = 256;
  float likelihood[kChunk];
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    int64_t count = 0;
    for (int64_t i = begin; i < std::min(begin + kChunk, n); ++i) {
      if (z[i] < least || z[i] == kLowest) continue;
      end[count].key = -z[i];
      likelihood[count++] = z[i];
    }
    simd().exp(likelihood, count);
    for (int64_t i = 0; i < count; ++i)
      (end++)->likelihood = likelihood[i];
  }
  return {first, end};
}

// The largest key among the fewest candidates of smallest keys whose likelihoods reach that share of
// the sum of all. Reorders the candidates.
float key_reaching(std::span<Candidate> candidates, float share) {
  const auto is_before = [](const Candidate& a, const Candidate& b) { return a.key < b.key; };
  const double target = sum_of_likelihoods(candidates) * std::max(0.0F, share);
  // Sorting a few candidates usually suffices; when their sum falls short, sort more.
  for (size_t num_sorted = std::min<size_t>(256, candidates.size());;
       num_sorted = std::min(num_sorted * 16, candidates.size())) {
    const std::span<Candidate> first = candidates.first(num_sorted);
    if (num_sorted < candidates.size()) {
      std::nth_element(candidates.begin(), first.end() - 1, candidates.end(), is_before);
      if (sum_of_likelihoods(first) < target) continue;
    }
    std::sort(first.begin(), first.end(), is_before);
    double sum = 0;
    for (const Candidate& candidate : first) {
      sum += candidate.likelihood;
      if (sum >= target) return candidate.key;
    }
    if (num_sorted == candidates.size()) return candidates.back().key;
  }
}

// The values of z that are kept: those of at least `least` and within `reach` of the center.
struct Kept {
  float least = kLowest;
  float center = 0;
  float reach = std::numeric_limits<float>::infinity();  // to both sides of the center

  [[nodiscard]] bool has(float z) const { return z >= least && std::abs(z - center) <= reach; }
};

// Uses Buffer::kSecond.
float kth_largest(const float* z, int64_t n, int32_t k) {
  float* const copy = thread_buffer(Buffer::kSecond, n);
  std::copy_n(z, n, copy);
  std::nth_element(copy, copy + k - 1, copy + n, std::greater<>());
  return copy[k - 1];
}

// Keeps, of the tokens kept so far, those whose z is nearest to the expected one: their distance is
// that of -log p from the entropy.
void keep_typical(const float* z, int64_t n, float typical_p, Kept& kept) {
  const std::span<Candidate> candidates = candidates_from(z, n, kept.least);
  double moment = 0;
  for (const Candidate& candidate : candidates)
    moment -= static_cast<double>(candidate.key) * candidate.likelihood;
  kept.center = static_cast<float>(moment / sum_of_likelihoods(candidates));
  for (Candidate& candidate : candidates)
    candidate.key = std::abs(-candidate.key - kept.center);
  kept.reach = key_reaching(candidates, typical_p);
}

// `z` has -infinity where the logit is not a number.
Kept find_kept(const float* z, int64_t n, const SamplingParams& params) {
  Kept kept;
  if (params.top_k > 0 && params.top_k < n) kept.least = kth_largest(z, n, params.top_k);
  if (params.top_p < 1.0F) {
    kept.least =
        std::max(kept.least, -key_reaching(candidates_from(z, n, kept.least), params.top_p));
  }
  if (params.min_p > 0) kept.least = std::max(kept.least, std::min(0.0F, std::log(params.min_p)));
  if (params.typical_p < 1.0F) keep_typical(z, n, params.typical_p, kept);
  return kept;
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
  const Kept kept = find_kept(z, n, params);
  const int64_t num_blocks = div_up(n, 4);
  float* noise = thread_buffer(Buffer::kThird, 4 * num_blocks);
  simd().gumbels(params.seed, kv_len, num_blocks, noise);
  float best = kLowest;
  int64_t winner = -1;
  for (int64_t i = 0; i < n; ++i) {
    const float score = z[i] + noise[i];
    if (kept.has(z[i]) && score > best) {
      best = score;
      winner = i;
    }
  }
  return winner < 0 ? first_index_of(logits, n, largest) : static_cast<int32_t>(winner);
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
