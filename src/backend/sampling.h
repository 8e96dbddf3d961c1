// Defines the rows that `sample` and the ops around it (ops.h) read and write, and the rules of
// sampling that all devices share.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backend/host_device.h"

namespace encore {

// The largest top_k for which ranks, each of which has the logits of a part of the vocabulary,
// exchange only the best candidates of their parts (own_candidates in ops.cc). For a larger top_k
// they exchange all logits.
inline constexpr int32_t kMostMergedTopK = 64;
// The smallest temperature by which logits are divided. With a lower temperature, the token with
// the largest logit is taken.
inline constexpr float kLeastTemperature = 0x1p-126F;

// The parameters by which a sequence's next token is chosen. sample/params.cc has their names,
// ranges and a line on each. These rules are applied one after the other, with p = softmax(logits /
// temperature), and each keeps some of the tokens:
//   top_k      the k most likely tokens
//   top_p      of the tokens kept by then, the fewest most likely ones whose probabilities add up
//              to at least top_p times the sum over all tokens kept by then
//   min_p      of the tokens kept by then, the ones with p >= min_p * max p
//   typical_p  of the tokens kept by then, with p scaled to add up to 1, the fewest with -log p
//              nearest to the entropy whose probabilities add up to at least typical_p
//              (Meister et al., "Locally Typical Sampling")
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
  int32_t num_logprobs = -1;   // likeliest tokens to report beside the chosen one; -1: nothing
  int32_t without_drafts = 0;  // 1: no drafts are guessed for the sequence
  int64_t seed = 0;

  [[nodiscard]] ENCORE_HOST_DEVICE constexpr bool is_greedy() const {
    return !(temperature >= kLeastTemperature);
  }
  // Returns whether top_k leaves out any token of a vocabulary of this size.
  [[nodiscard]] ENCORE_HOST_DEVICE constexpr bool has_top_k(int64_t vocabulary) const {
    return top_k > 0 && top_k < vocabulary;
  }
  // Returns whether the next token can be found among the best tokens of each rank's part of the
  // vocabulary. It cannot with top_p, min_p and typical_p, which depend on sums over the whole
  // vocabulary, or with a top_k above kMostMergedTopK.
  [[nodiscard]] ENCORE_HOST_DEVICE constexpr bool merges(int64_t vocabulary) const {
    if (is_greedy()) return true;
    const bool by_sums = top_p < 1 || min_p > 0 || typical_p < 1;
    return !by_sums && !(has_top_k(vocabulary) && top_k > kMostMergedTopK);
  }
  // Returns whether the logits are changed by penalties, which depend on the tokens of the
  // sequence.
  [[nodiscard]] constexpr bool has_penalties() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

// One row of the step input `sampling`, i32[B,kSamplingWords].
struct SamplingRow {
  SamplingParams params;
  int32_t min_length = 0;  // stop tokens are not chosen before this length
  int32_t state = -1;      // row of token_counts and token_bias; -1: none
  int32_t mask = -1;       // row of token_masks; -1: every token may be chosen
  int32_t num_stops = 0;   // stop tokens that do not fit into the row of stop_tokens

  // Returns whether drafts may be guessed for the sequence and checked in the same step. They may
  // not with a grammar, since the host, which evaluates the grammar, does not know the drafts.
  [[nodiscard]] ENCORE_HOST_DEVICE bool takes_drafts() const {
    return mask < 0 && params.without_drafts == 0;
  }

  // Returns whether the logits of a sequence of `length` tokens are changed before a token is
  // chosen. A `length` of 0 stands for no sequence.
  [[nodiscard]] ENCORE_HOST_DEVICE bool adjusts(int32_t length) const {
    return length > 0 && (state >= 0 || mask >= 0 || length < min_length);
  }

  // Returns whether a rank finds the next token of a sequence of `length` tokens without the logits
  // of other ranks. Always true for padding rows, whose length is 0.
  [[nodiscard]] ENCORE_HOST_DEVICE bool merges(int32_t length, int64_t vocabulary) const {
    return length <= 0 || params.merges(vocabulary);
  }
  // Returns whether each rank needs the logits of the whole vocabulary.
  [[nodiscard]] ENCORE_HOST_DEVICE bool needs_all_logits(int32_t length, int64_t vocabulary) const {
    return length > 0 && (params.num_logprobs >= 0 || !params.merges(vocabulary));
  }
};
inline constexpr int64_t kSamplingWords = sizeof(SamplingRow) / sizeof(int32_t);
static_assert(sizeof(SamplingRow) == 64);

// The bit of an element of token_counts that says whether the token is in the prompt. The other
// bits count how often the token was generated.
inline constexpr int32_t kInPrompt = INT32_MIN;

// A token that one rank's part of the vocabulary offers as the next token of a row. An unused entry
// has a score of -infinity and the token -1.
struct SampleCandidate {
  float z;      // its scaled logit (backend/cpu/sample.cc)
  float score;  // z plus noise; -infinity: counts for top_k, never wins
  float token;  // id of the token, a whole number
};
static_assert(sizeof(SampleCandidate) == 3 * sizeof(float));

// One entry of token_bias: a token and its bias. A row of token_bias belongs to one sequence. It
// begins with the `num_stops` stop tokens of SamplingRow, whose bias is unused. The biases follow.
// They end at the first entry with the token -1, or at the end of the row.
struct TokenBias {
  int32_t token = -1;
  float bias = 0;

  friend bool operator==(const TokenBias&, const TokenBias&) = default;
};
inline constexpr int64_t kMaxTokenBias = 1024;  // biases of one sequence

// Returns the number of words in a row of token_masks, which has one bit for each token: bit t % 32
// of word t / 32 says whether token t may be chosen.
constexpr int64_t num_mask_words(int64_t vocab_size) {
  return (vocab_size + 31) / 32;
}
ENCORE_HOST_DEVICE inline bool may_be_chosen(const int32_t* mask, int32_t token) {
  return (static_cast<uint32_t>(mask[token / 32]) >> (token % 32) & 1U) != 0;
}

// Returns the logit of a token after penalties. `count` is the element of token_counts for the
// token.
ENCORE_HOST_DEVICE inline float penalized(float logit, int32_t count,
                                          const SamplingParams& params) {
  if (count == 0) return logit;
  logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  const int32_t generated = count & ~kInPrompt;
  if (generated == 0) return logit;
  return logit -
         fmaf(params.frequency_penalty, static_cast<float>(generated), params.presence_penalty);
}

// One row of logprob_ring, i32[E,M,kLogprobWords]: natural logarithms of softmax(logits), before
// any adjustment of the logits. Fields that were not asked for keep their old content.
struct LogprobRow {
  static constexpr int kMaxTop = 20;
  struct Entry {
    int32_t token;
    float logprob;
  };
  float logprob;  // log probability of the chosen token
  int32_t rank;   // rank of the chosen token; 1: no token is likelier
  Entry top[kMaxTop];
};
inline constexpr int64_t kLogprobWords = sizeof(LogprobRow) / sizeof(int32_t);

// A change that `write_token_state` makes to a row. The values [first, first + num_prompt) are the
// tokens of the prompt, the next num_generated values are generated tokens, and num_bias pairs
// follow. A change without tokens changes nothing.
struct TokenStateChange {
  int32_t first = 0;
  int32_t num_prompt = 0;
  int32_t num_generated = 0;
  int32_t num_bias = 0;
};

}  // namespace encore
