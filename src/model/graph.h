// From a config to the graph of one step: embedding, layers, last-token gather behind the last
// attention, logits, sampling.
//
// The graph's step inputs are the rows of `kStepInputs` (backend/step_inputs.h), of T tokens and B
// sequences.
//
// The pages of each sequence, in order, are on the device from one step to the next: the persistent
// buffer page_table i32[M,N], of M sequences at most (runtime/page_table.h). Where layers with a window have
// pages of their own (num_window_pages), window_table i32[M,N] has those, at the same entries; entries of
// pages that no later token sees hold anything.
//
// At its end a step publishes its tokens and makes these inputs those of the next step (`advance`
// in ops.cc). The persistent buffers for it: last_tokens i32[M], step_clock i32[2],
// token_ring i32[128,M], logprob_ring i32[128,M,42], ring_marks i32[32]; and of those sequences
// whose logits are adjusted, token_counts i32[M,V], token_bias i32[M,1024,2] and,
// written by the host, token_masks i32[M,V/32]. Without logits of the last rows there is no such
// end, and no input of its own.
//
// With drafts (num_drafts K > 0) a step begins with `lookup_drafts`, or with a draft model's passes
// (draft_model.h). In a uniform step of 1 + K tokens
// a sequence, and in a mixed step, L = B (1 + K) rows have logits, otherwise L = B. Where drafts are looked up, the tokens of a
// sequence lie beside its K and V, in the state token_cache i32[P,S]; page_table has room for K tokens more, as the
// guesses behind a sequence's last tokens have places, and the rings have 1 + K entries a row.
// Where drafts of a draft model of W tokens are accepted by rejection sampling, draft_probs f32[K,M,W] keeps what
// they were drawn from, until `accept`.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/step_inputs.h"
#include "base/rank.h"
#include "ir/graph.h"
#include "model/config.h"
#include "model/lora/shape.h"

namespace encore::model {

// Tokens that a draft is looked up by at most, unless an option says so.
inline constexpr int64_t kMaxMatch = 4;
// The number of steps whose tokens the host may leave unread.
inline constexpr int64_t kTokenRingSteps = 128;

// The id that stands for the token which the last step sampled for that row.
constexpr int32_t last_token_of(int32_t row) {
  return -2 - row;
}

// The rows that get logits, and with that the graph's outputs.
enum class LogitsRows : uint8_t {
  kLast,  // the last of each sequence; outputs: next i32[B], logits f32[B,V] (of several ranks: as
          // gather_logits leaves them), and kScoredOutputs
  kAll,   // every token's; outputs: logits f32[T,V]
};
// Values from which every token's logits could be computed, kept until the next step begins: the
// output of attention in the last layer, [T,H*C], and the input of that layer, [T,D]. Only rows
// whose logits are asked for go on from there: for the others, a layer's feed-forward would be
// wasted.
struct ScoredOutput {
  std::string_view name;  // of the score graph's weight
  int index;              // among the outputs
};
inline constexpr ScoredOutput kScoredOutputs[] = {{"attended", 2}, {"residual", 3}};

// The scales of a layer whose K and V are kept in 8 bits: the caches hold K / k and V / v. Where heads
// have scales of their own, k and v are the largest, and each head has its share of that, at most 1.
struct KvScale {
  double k = 1;
  double v = 1;
  std::vector<double> k_shares = {};  // by head, powers of two; empty: ones
  std::vector<double> v_shares = {};
};

class WeightFormats;

// How a step decides on drafts.
enum class Acceptance : uint8_t {
  // A draft stands where it is the token that the model's sampling chooses, by the noise that it has there:
  // texts are those without drafts.
  kCoupled,
  // A draft of probability q stands with probability min(1, p / q): texts are distributed as those without
  // drafts, and more drafts stand than by equality.
  kRejection,
};

// A model that guesses the tokens of another one, which has the same vocabulary.
struct DraftModel {
  ModelConfig config;
  const WeightFormats* formats = nullptr;  // of its projections; null: floats
};

// Activations of so many rows or more, padding included, are rounded to FP8 where they may be. With
// fewer rows, reading weights takes longer than multiplying, so rounding gains nothing.
inline constexpr int64_t kFp8Rows = 33;

struct GraphOptions {
  DType dtype = DType::kBF16;     // of weights and activations
  std::optional<DType> kv_dtype;  // of K and V as they are kept; absent: dtype
  int64_t num_pages = 64;         // P
  int64_t page_size = 32;         // S
  int64_t max_seq_len = 4096;     // Units: tokens; N = ceil(max_seq_len / S)
  int64_t max_batch_size = 64;    // M
  LogitsRows logits = LogitsRows::kLast;
  // K: tokens of a sequence that a step guesses at most, and how many tokens a guess is looked up
  // by at most. REQUIRES: LogitsRows::kLast where there are any.
  int64_t num_drafts = 0;
  int64_t max_match = kMaxMatch;
  std::optional<DraftModel> draft = {};  // absent: drafts are looked up in the sequence
  Acceptance acceptance = Acceptance::kCoupled;
  // Ranks choose tokens from each other's candidates where they can; else they gather all logits.
  bool merges_candidates = true;
  std::vector<KvScale> kv_scales;          // by layer, powers of two; empty: ones
  const WeightFormats* formats = nullptr;  // of the projections; null: floats
  Rank rank = {};                          // whose share of the model it is (model/shard.h)
  int64_t fp8_rows = kFp8Rows;
  std::optional<LoraShape> lora;  // absent: rows have no adapters
  // Pages of layers with a window, which are a group of their own (kWindowGroup). Absent: all layers have
  // the same pages.
  std::optional<int64_t> num_window_pages = {};
  // Steps are repeated in bursts, which the host may end: ranks agree on the step at which one does.
  bool bursts = false;
};

// The groups of states (ir::Value::group): pages of whole sequences, and those that hold a window of each.
inline constexpr int kWholeGroup = 0;
inline constexpr int kWindowGroup = 1;

// The tokens that a group of layers with a window has to keep of a sequence: the largest window that
// sequences of `max_seq_len` tokens outgrow. None: no layer has such a window.
std::optional<int64_t> kept_window(const ModelConfig& config, int64_t max_seq_len);

// Errors: kUnsupported when no builder knows the architecture, listing those that exist; those of
// share_of(), for a rank of several.
ir::Graph build_graph(const ModelConfig& config, const GraphOptions& options);

// Rows that one run of a score graph takes.
inline constexpr int64_t kScoredRows = 64;

// The graph that scores tokens which are given, not sampled: from kScoredOutputs of a step of up to
// `max_num_tokens` tokens to log probabilities. Those are its weights, beside the model's own from
// there on. Its step inputs are those of `score_input` (backend/step_inputs.h), of B rows, at most
// kScoredRows. Entries of the host-visible buffer logprob_ring i32[E,64,42] hold what two steps of so
// many tokens ask.
// The options are those of the model.
ir::Graph build_score_graph(const ModelConfig& config, const GraphOptions& options,
                            int64_t max_num_tokens);

// Bytes of K and V that one token takes over all layers, kept in `kv_dtype`.
int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype);
// Bytes of K and V of a token, of layers that keep all tokens and of those that keep a window of them, where
// sequences have up to `max_seq_len` tokens.
struct KvBytes {
  int64_t whole = 0;
  int64_t window = 0;
};
KvBytes kv_bytes_by_group(const ModelConfig& config, DType kv_dtype, int64_t max_seq_len);

}  // namespace encore::model
