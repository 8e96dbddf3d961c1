// Random numbers that are pure functions of (seed, counter). They have the same bits on every
// device.
//
// The code avoids every operation that a CPU and a GPU could round differently. Products that feed
// a sum are an explicit fma, logarithm and sine are short series, and division and square root are
// correctly rounded on both. (Never compile users of this header with fast-math flags.) So a
// synthetic checkpoint has the same weights on every device, and a sampled token the same noise.
//
//   fill_random(seed, stddev)   element (r, c), with
//                               w = philox(seed, {c / 4, r, 0, 0}):
//                               c % 4 = 0, 1: Box-Muller of (w[0], w[1]), cosine first; 2, 3:
//                               (w[2], w[3]); times stddev in f32, rounded once to the tensor's
//                               dtype. A vector is one row; c / 4 of 2^32 and more count into r.
//   noise of tokens             token v: gumbel(w[v % 4]), w = philox(seed, {v / 4, kv_len, 0, purpose}).
//   whether a draft stands      uniform01(w[0]), w = philox(seed, {0, kv_len, 0, Purpose::kAccept}).
//
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011 (Philox4x32-10).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "backend/host_device.h"

namespace encore::random {

// Four 32-bit words: a counter, or the random words that philox() makes of it.
struct Words {
  uint32_t word[4];
};

namespace detail {

ENCORE_HOST_DEVICE inline uint32_t low(uint64_t value) {
  return static_cast<uint32_t>(value);
}
ENCORE_HOST_DEVICE inline uint32_t high(uint64_t value) {
  return static_cast<uint32_t>(value >> 32U);
}

// Returns log(1 + f) for f in [-0.3, 0.4142], by 2 atanh(f / (2 + f)); relative error about 2e-7.
ENCORE_HOST_DEVICE inline float log1p_series(float f) {
  const float s = f / (2.0F + f);
  const float z = s * s;
  float tail = 1.0F / 11.0F;
  tail = fmaf(tail, z, 1.0F / 9.0F);
  tail = fmaf(tail, z, 1.0F / 7.0F);
  tail = fmaf(tail, z, 1.0F / 5.0F);
  tail = fmaf(tail, z, 1.0F / 3.0F);
  const float twice = s + s;
  return fmaf(twice * z, tail, twice);
}

// Return sin(t) and cos(t) for |t| <= pi/4.
ENCORE_HOST_DEVICE inline float sin_series(float t) {
  const float z = t * t;
  float tail = 1.0F / 362880.0F;
  tail = fmaf(tail, z, -1.0F / 5040.0F);
  tail = fmaf(tail, z, 1.0F / 120.0F);
  tail = fmaf(tail, z, -1.0F / 6.0F);
  return fmaf(t * z, tail, t);
}
ENCORE_HOST_DEVICE inline float cos_series(float t) {
  const float z = t * t;
  float tail = -1.0F / 3628800.0F;
  tail = fmaf(tail, z, 1.0F / 40320.0F);
  tail = fmaf(tail, z, -1.0F / 720.0F);
  tail = fmaf(tail, z, 1.0F / 24.0F);
  tail = fmaf(tail, z, -0.5F);
  return fmaf(z, tail, 1.0F);
}

}  // namespace detail

// Computes Philox4x32 with 10 rounds. The low word of the key is the first key word.
ENCORE_HOST_DEVICE inline Words philox(uint64_t key, Words counter) {
  uint32_t k0 = detail::low(key);
  uint32_t k1 = detail::high(key);
  uint32_t c0 = counter.word[0];
  uint32_t c1 = counter.word[1];
  uint32_t c2 = counter.word[2];
  uint32_t c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(0xD2511F53U) * c0;
    const uint64_t product1 = static_cast<uint64_t>(0xCD9E8D57U) * c2;
    c0 = detail::high(product1) ^ c1 ^ k0;
    c1 = detail::low(product1);
    c2 = detail::high(product0) ^ c3 ^ k1;
    c3 = detail::low(product0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

// Returns a number in (0, 1): at least 2^-33, fine-grained near 0, and at most 1 - 2^-24.
ENCORE_HOST_DEVICE inline float uniform01(uint32_t bits) {
  const float number = (static_cast<float>(bits) + 0.5F) * 0x1p-32F;
  return number < 1.0F ? number : 0x1.fffffep-1F;
}

// Returns the natural logarithm of a positive, normal, finite number.
ENCORE_HOST_DEVICE inline float log_positive(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  // The exponent is chosen so that the remaining mantissa lies in [sqrt(1/2), sqrt(2)).
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;
  const float mantissa = std::bit_cast<float>(bits - exponent * (1 << 23));
  return fmaf(static_cast<float>(exponent), 0.693147180559945F,
              detail::log1p_series(mantissa - 1.0F));
}

// Returns Gumbel noise, -log(-log(1 - u)) with u = uniform01(bits). The upper tail, which decides
// which token wins, comes from the fine-grained end of u. The result is finite for every input.
ENCORE_HOST_DEVICE inline float gumbel(uint32_t bits) {
  const float u = uniform01(bits);
  const float exponential = u < 0.25F ? -detail::log1p_series(-u) : -log_positive(1.0F - u);
  return -log_positive(exponential);
}

// The uses of random numbers for one position of a sequence. Each use has numbers of its own: if a
// draft shared its noise with the decision about it, it would be accepted too often or too seldom.
enum class Purpose : uint32_t {
  kSample = 1,    // samples the token from the model's own distribution
  kDraft = 2,     // samples a draft, where rejection sampling accepts drafts
  kAccept = 3,    // decides whether the draft is accepted
  kResample = 4,  // samples the token that replaces a rejected draft
};

// Returns the four random words from which the noise of the tokens 4 * block to 4 * block + 3 is
// made.
ENCORE_HOST_DEVICE inline Words sample_words(int64_t seed, int32_t kv_len, uint32_t block,
                                             Purpose purpose = Purpose::kSample) {
  return philox(static_cast<uint64_t>(seed),
                {{block, static_cast<uint32_t>(kv_len), 0U, static_cast<uint32_t>(purpose)}});
}
// Returns the Gumbel noise of one token, for a row with the seed `seed` and the length `kv_len`.
ENCORE_HOST_DEVICE inline float sample_noise(int64_t seed, int32_t kv_len, uint32_t token,
                                             Purpose purpose = Purpose::kSample) {
  return gumbel(sample_words(seed, kv_len, token / 4U, purpose).word[token % 4U]);
}
// Returns a number in (0, 1) that is compared with the probability that a draft is accepted.
ENCORE_HOST_DEVICE inline float acceptance_noise(int64_t seed, int32_t kv_len) {
  return uniform01(sample_words(seed, kv_len, 0, Purpose::kAccept).word[0]);
}

// Two independent normal(0, 1) numbers.
struct NormalPair {
  float first;
  float second;
};

// Returns two normal numbers by the Box-Muller method: sqrt(-2 log u1) times (cos, sin) of u2
// turns.
ENCORE_HOST_DEVICE inline NormalPair normal_pair(uint32_t bits1, uint32_t bits2) {
  const float radius = sqrtf(-2.0F * log_positive(uniform01(bits1)));
  const float turns = uniform01(bits2);
  const auto quarter = static_cast<int32_t>(fmaf(turns, 4.0F, 0.5F));  // nearest; 0 to 4
  const float t = fmaf(static_cast<float>(quarter), -0.25F, turns) * 6.28318530717959F;
  const float s = detail::sin_series(t);
  const float c = detail::cos_series(t);
  const bool swapped = (quarter & 1) != 0;
  float cosine = swapped ? s : c;
  float sine = swapped ? c : s;
  if (quarter == 1 || quarter == 2) cosine = -cosine;
  if (quarter == 2 || quarter == 3) sine = -sine;
  return {radius * cosine, radius * sine};
}

// Returns the number of the run of four columns, 4 * block to 4 * block + 3, of the row `row` of a
// matrix. The elements of such a run are made from the same random words.
ENCORE_HOST_DEVICE inline uint64_t matrix_block(int64_t row, int64_t block) {
  return (static_cast<uint64_t>(row) << 32U) + static_cast<uint64_t>(block);
}
// Returns the four random words from which fill_random makes the four elements of the run that
// matrix_block() has numbered `block`.
ENCORE_HOST_DEVICE inline Words fill_words(uint64_t seed, uint64_t block) {
  return philox(seed, {{detail::low(block), detail::high(block), 0U, 0U}});
}
// Four neighbouring elements of fill_random before they are scaled by stddev, distributed as
// normal(0, 1).
struct NormalBlock {
  float number[4];
};
ENCORE_HOST_DEVICE inline NormalBlock fill_block(uint64_t seed, uint64_t block) {
  const Words w = fill_words(seed, block);
  const NormalPair a = normal_pair(w.word[0], w.word[1]);
  const NormalPair b = normal_pair(w.word[2], w.word[3]);
  return {{a.first, a.second, b.first, b.second}};
}

}  // namespace encore::random
