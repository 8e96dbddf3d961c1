// The rows that `sample` and the ops around it (ops.h) read and write, and the rules that are the
// same on every device.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backend/host_device.h"

namespace encore {

// Ranks that have a part of the vocabulary each exchange what their parts have to offer (own_candidates
// in ops.cc): of a larger top_k than this, they exchange all logits instead.
inline constexpr int32_t kMostMergedTopK = 64;
// No temperature below this one divides a logit: the largest is taken.
inline constexpr float kLeastTemperature = 0x1p-126F;

// The choice of a sequence's next token. sample/params.cc has names, ranges and a line on each.
// Some tokens are kept, with p = softmax(logits / temperature), one rule after the other:
//   top_k      the k most likely
//   top_p      of those, the fewest most likely whose sum reaches top_p of theirs
//   min_p      of those, the ones with p >= min_p * max p
//   typical_p  of those, with p made to add up to 1, the fewest of -log p nearest to the entropy
//              whose sum reaches typical_p (Meister et al., "Locally Typical Sampling")
// Ties at a threshold are kept.
struct SamplingParams {
  float temperature = 0;
  int32_t top_k = 0;  // 0 or -1: all
  float top_p = 1;
  float min_p = 0;
  float typical_p = 1;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t num_logprobs = -1;   // likeliest tokens to name beside the chosen one; -1: not even that
  int32_t without_drafts = 0;  // 1: nothing is guessed for the sequence
  int64_t seed = 0;

  [[nodiscard]] ENCORE_HOST_DEVICE constexpr bool is_greedy() const {
    return !(temperature >= kLeastTemperature);
  }
  // Does top_k leave any of so many tokens out?
  [[nodiscard]] ENCORE_HOST_DEVICE constexpr bool has_top_k(int64_t vocabulary) const {
    return top_k > 0 && top_k < vocabulary;
  }
  // Is the token found among the best tokens of each part of the vocabulary? What top_p and those below
  // it keep depends on sums over all of it.
  [[nodiscard]] ENCORE_HOST_DEVICE constexpr bool merges(int64_t vocabulary) const {
    if (is_greedy()) return true;
    const bool by_sums = top_p < 1 || min_p > 0 || typical_p < 1;
    return !by_sums && !(has_top_k(vocabulary) && top_k > kMostMergedTopK);
  }
  // Do the logits depend, by penalties, on the tokens that the sequence has?
  [[nodiscard]] constexpr bool has_penalties() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

// A row of the step input `sampling`, i32[B,kSamplingWords].
struct SamplingRow {
  SamplingParams params;
  int32_t min_length = 0;  // tokens of a sequence that none of its stop tokens follows before
  int32_t state = -1;      // its row of token_counts and token_bias; -1: it needs none
  int32_t mask = -1;       // its row of token_masks; -1: every token may be chosen
  int32_t num_stops = 0;   // stop tokens that its row of stop_tokens has no room for

  // May tokens behind the next one be guessed and checked in the same step? A grammar, which the host asks, would
  // not know the guesses.
  [[nodiscard]] ENCORE_HOST_DEVICE bool takes_drafts() const {
    return mask < 0 && params.without_drafts == 0;
  }

  // Are the logits of a sequence of `length` tokens changed before one is chosen? 0: no sequence.
  [[nodiscard]] ENCORE_HOST_DEVICE bool adjusts(int32_t length) const {
    return length > 0 && (state >= 0 || mask >= 0 || length < min_length);
  }

  // Is the token of a sequence of `length` tokens found without its logits of other ranks? Padding's is.
  [[nodiscard]] ENCORE_HOST_DEVICE bool merges(int32_t length, int64_t vocabulary) const {
    return length <= 0 || params.merges(vocabulary);
  }
  // Does each rank need all of the vocabulary's logits?
  [[nodiscard]] ENCORE_HOST_DEVICE bool needs_all_logits(int32_t length, int64_t vocabulary) const {
    return length > 0 && (params.num_logprobs >= 0 || !params.merges(vocabulary));
  }
};
inline constexpr int64_t kSamplingWords = sizeof(SamplingRow) / sizeof(int32_t);
static_assert(sizeof(SamplingRow) == 64);

// Counts a token of a sequence, an element of token_counts: how often it was generated, and whether
// it is in the prompt.
inline constexpr int32_t kInPrompt = INT32_MIN;

// A part of the vocabulary offers such tokens for a row; one of them may be the row's. An unused one has
// -infinity and -1.
struct SampleCandidate {
  float z;      // its logit, scaled (backend/cpu/sample.cc)
  float score;  // z and its noise; -infinity: it counts for top_k, and never wins
  float token;  // a whole number
};
static_assert(sizeof(SampleCandidate) == 3 * sizeof(float));

// A pair of token_bias. A row of them begins with `num_stops` stop tokens, whose bias says nothing.
// Behind them are biases: the row ends with the first of token -1, or is full.
struct TokenBias {
  int32_t token = -1;
  float bias = 0;

  friend bool operator==(const TokenBias&, const TokenBias&) = default;
};
inline constexpr int64_t kMaxTokenBias = 1024;  // of a sequence

// A row of token_masks has a bit a token: bit t % 32 of word t / 32 says whether t may be chosen.
constexpr int64_t num_mask_words(int64_t vocab_size) {
  return (vocab_size + 31) / 32;
}
ENCORE_HOST_DEVICE inline bool may_be_chosen(const int32_t* mask, int32_t token) {
  return (static_cast<uint32_t>(mask[token / 32]) >> (token % 32) & 1U) != 0;
}

// A logit as the penalties leave it.
ENCORE_HOST_DEVICE inline float penalized(float logit, int32_t count,
                                          const SamplingParams& params) {
  if (count == 0) return logit;
  logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  const int32_t generated = count & ~kInPrompt;
  if (generated == 0) return logit;
  return logit -
         fmaf(params.frequency_penalty, static_cast<float>(generated), params.presence_penalty);
}

// A row of logprob_ring, i32[E,M,kLogprobWords]: natural logarithms of softmax(logits), as the
// model gives them. Fields that the row did not ask for are left as they were.
struct LogprobRow {
  static constexpr int kMaxTop = 20;
  struct Entry {
    int32_t token;
    float logprob;
  };
  float logprob;  // of the chosen token
  int32_t rank;   // 1: no token is likelier
  Entry top[kMaxTop];
};
inline constexpr int64_t kLogprobWords = sizeof(LogprobRow) / sizeof(int32_t);

// The change that `write_token_state` makes to a row: values [first, first + num_prompt) are tokens
// of the prompt, the next num_generated ones were generated, then come num_bias pairs. Nothing
// changes where there are no tokens.
struct TokenStateChange {
  int32_t first = 0;
  int32_t num_prompt = 0;
  int32_t num_generated = 0;
  int32_t num_bias = 0;
};

}  // namespace encore
