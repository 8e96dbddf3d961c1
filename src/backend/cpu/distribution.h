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
// Is the likeliest token the row's? It is at temperature 0, and where there is nothing to choose by, as no logit
// is a number or one is infinite. `largest`: of all logits of the row.
bool takes_likeliest(const SamplingParams& params, float largest);
// The token of a row that takes the likeliest one. Absent where one is drawn.
std::optional<int32_t> certain_token(const float* logits, int64_t n, const SamplingParams& params);

// The k-th largest of n numbers. Uses Buffer::kSecond.
float kth_largest(const float* z, int64_t n, int32_t k);
// Writes the scale of some logits of a row, of which `largest` is the largest of all: -infinity where the logit is
// not a number.
void scale(const float* logits, int64_t n, float largest, float temperature, float* z);
// Writes the scale of a row for which a token is drawn, -infinity where the logit is not a number, and
// returns which of it is kept. Uses Buffer::kSecond.
Kept scale_logits(const float* logits, int64_t n, const SamplingParams& params, float* z);

// Writes the probability by which each token of a row is chosen; one token has all of it where none is
// drawn. Uses Buffer::kSecond.
void write_probabilities(const float* logits, int64_t n, const SamplingParams& params, float* p);

}  // namespace encore::cpu
