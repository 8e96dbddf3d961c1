// Computes the distribution over tokens that a row of logits and the sampling parameters of its
// sequence define.
//
// The scale of a row is z = (logit - largest logit) / temperature, so that p is exp(z) over its
// sum, the largest p belongs to z = 0, and nothing overflows. Each parameter that limits which
// tokens are kept limits z further.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "backend/sampling.h"

namespace encore::cpu {

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The values of z that are kept: those that are at least `least` and differ by at most `reach` from
// the center.
struct Kept {
  float least = kLowest;
  float center = 0;
  // Tokens are kept whose z differs by at most this from `center`.
  float reach = std::numeric_limits<float>::infinity();

  [[nodiscard]] bool has(float z) const { return z >= least && std::abs(z - center) <= reach; }
};

// Returns the first token of the largest logit, or 0 where no logit is a number.
int32_t likeliest_token(const float* logits, int64_t n);
// Returns whether the likeliest token is the row's token. That is so at temperature 0, where no
// logit is a number, and where the largest logit is infinite. `largest` is the largest logit of the
// row.
bool takes_likeliest(const SamplingParams& params, float largest);
// Returns the likeliest token if it is the row's token, or nothing if the row's token is drawn.
std::optional<int32_t> certain_token(const float* logits, int64_t n, const SamplingParams& params);

// Returns the k-th largest of n numbers. Uses Buffer::kSecond.
float kth_largest(const float* z, int64_t n, int32_t k);
// Writes z for some logits of a row whose largest logit is `largest`, and -infinity for logits that
// are not a number.
void scale(const float* logits, int64_t n, float largest, float temperature, float* z);
// Writes z for a row for which a token is drawn, and -infinity for logits that are not a number.
// Returns the values of z that are kept. Uses Buffer::kSecond.
Kept scale_logits(const float* logits, int64_t n, const SamplingParams& params, float* z);

// Writes the probability with which each token of a row is chosen. Where no token is drawn, the
// row's token has probability 1. Uses Buffer::kSecond.
void write_probabilities(const float* logits, int64_t n, const SamplingParams& params, float* p);

}  // namespace encore::cpu
