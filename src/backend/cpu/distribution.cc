#include "backend/cpu/distribution.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"

namespace encore::cpu {
namespace {

// A token that may be kept. Tokens are kept in the order of their keys, the smallest first, until
// their likelihoods reach a share of the sum.
struct Candidate {
  float key;
  float likelihood;  // exp(z)
};

double sum_of_likelihoods(std::span<const Candidate> candidates) {
  return std::accumulate(
      candidates.begin(), candidates.end(), 0.0,
      [](double sum, const Candidate& candidate) { return sum + candidate.likelihood; });
}

// Returns the tokens whose z is at least `least`, each with the key -z. The returned span lies in
// Buffer::kSecond.
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

// Returns the largest key in the shortest list of candidates with the smallest keys whose
// likelihoods add up to `share` of the sum of all. Reorders the candidates.
float key_reaching(std::span<Candidate> candidates, float share) {
  const auto is_before = [](const Candidate& a, const Candidate& b) { return a.key < b.key; };
  const double target = sum_of_likelihoods(candidates) * std::max(0.0F, share);
  // It is usually enough to sort a few candidates. Where their sum is too small, more are sorted.
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

// Keeps, among the tokens kept so far, those whose z is nearest to the expected z. A token's
// difference from it equals the difference of its -log p from the entropy.
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

// Returns the values of z that are kept. `z` has -infinity where the logit is not a number.
Kept find_kept(const float* z, int64_t n, const SamplingParams& params) {
  Kept kept;
  if (params.has_top_k(n)) kept.least = kth_largest(z, n, params.top_k);
  if (params.top_p < 1.0F) {
    kept.least =
        std::max(kept.least, -key_reaching(candidates_from(z, n, kept.least), params.top_p));
  }
  if (params.min_p > 0) kept.least = std::max(kept.least, std::min(0.0F, std::log(params.min_p)));
  if (params.typical_p < 1.0F) keep_typical(z, n, params.typical_p, kept);
  return kept;
}

}  // namespace

float kth_largest(const float* z, int64_t n, int32_t k) {
  float* const copy = thread_buffer(Buffer::kSecond, n);
  std::copy_n(z, n, copy);
  std::nth_element(copy, copy + k - 1, copy + n, std::greater<>());
  return copy[k - 1];
}

int32_t likeliest_token(const float* logits, int64_t n) {
  const float* found = std::find(logits, logits + n, simd().max_number(logits, n));
  return found == logits + n ? 0 : static_cast<int32_t>(found - logits);
}

bool takes_likeliest(const SamplingParams& params, float largest) {
  return params.is_greedy() || !std::isfinite(largest);
}

std::optional<int32_t> certain_token(const float* logits, int64_t n, const SamplingParams& params) {
  if (!takes_likeliest(params, simd().max_number(logits, n))) return std::nullopt;
  return likeliest_token(logits, n);
}

void scale(const float* logits, int64_t n, float largest, float temperature, float* z) {
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = (logits[i] - largest) / temperature;
    z[i] = scaled <= 0 ? scaled : kLowest;  // NaN becomes -infinity
  }
}

Kept scale_logits(const float* logits, int64_t n, const SamplingParams& params, float* z) {
  scale(logits, n, simd().max_number(logits, n), params.temperature, z);
  return find_kept(z, n, params);
}

void write_probabilities(const float* logits, int64_t n, const SamplingParams& params, float* p) {
  if (const auto token = certain_token(logits, n, params)) {
    std::fill_n(p, n, 0.0F);
    p[*token] = 1;
    return;
  }
  const Kept kept = scale_logits(logits, n, params, p);
  for (int64_t i = 0; i < n; ++i) {
    if (!kept.has(p[i])) p[i] = kLowest;
  }
  simd().exp(p, n);
  const double sum = std::accumulate(p, p + n, 0.0);
  if (sum == 0) {
    p[likeliest_token(logits, n)] = 1;
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    p[i] = static_cast<float>(p[i] / sum);
}

}  // namespace encore::cpu
