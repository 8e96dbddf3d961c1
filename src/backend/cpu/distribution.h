// The distribution that a row of logits and the parameters of its sequence give.
//
// The scale of a row is z = (logit - largest logit) / temperature, so that p is exp(z) over its
// sum, the largest p belongs to z = 0, and nothing overflows. Each parameter that says which tokens
// are kept bounds z further.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "backend/sampling.h"

namespace encore::cpu {

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The values of z that are kept: those of at least `least` and within `reach` of the center.
struct Kept {
  float least = kLowest;
  float center = 0;
  float reach = std::numeric_limits<float>::infinity();  // to both sides of the center

  [[nodiscard]] bool has(float z) const { return z >= least && std::abs(z - center) <= reach; }
};

// The first token of the largest logit; 0 where no logit is a number.
int32_t likeliest_token(const float* logits, int64_t n);
// The token of a row for which none is drawn: the likeliest one at temperature 0, and where there is nothing
// to choose by, as no logit is a number or one is infinite. Absent where one is drawn.
std::optional<int32_t> certain_token(const float* logits, int64_t n, const SamplingParams& params);

// Writes the scale of a row for which a token is drawn, -infinity where the logit is not a number, and
// returns which of it is kept. Uses Buffer::kSecond.
Kept scale_logits(const float* logits, int64_t n, const SamplingParams& params, float* z);

// Writes the probability by which each token of a row is chosen; one token has all of it where none is
// drawn. Uses Buffer::kSecond.
void write_probabilities(const float* logits, int64_t n, const SamplingParams& params, float* p);

}  // namespace encore::cpu
