// Builds the graph of one step from a config: the embedding, the layers, the gathering of last
// tokens behind the last attention, logits, and sampling.
//
// The graph's step inputs are the rows of `kStepInputs` (backend/step_inputs.h), of T tokens and B
// sequences.
//
// The device keeps the pages of each sequence, in order, from one step to the next, in the
// persistent buffer page_table i32[M,N], of M sequences at most (runtime/page_table.h). If layers
// with a window have pages of their own (num_window_pages), window_table i32[M,N] holds those at
// the same indices. Its entries for pages that no later token attends to are undefined.
//
// At its end, a step publishes its tokens and turns its inputs into those of the next step
// (`advance` in ops.cc). The persistent buffers for that are last_tokens i32[M], step_clock i32[2],
// token_ring i32[128,M], logprob_ring i32[128,M,42] and ring_marks i32[32]. For sequences whose
// logits are adjusted, there are also token_counts i32[M,V], token_bias i32[M,1024,2] and, written
// by the host, token_masks i32[M,V/32]. A graph that does not end with the last rows' logits
// (LogitsRows::kLast) has neither this end nor the inputs that only it reads.
//
// With drafts (num_drafts K > 0), a step begins with `lookup_drafts` or with the passes of a draft
// model (draft_model.h). In a mixed step, and in a uniform step of 1 + K tokens per sequence, L = B
// (1 + K) rows have logits; otherwise L = B. Where drafts are looked up, the state token_cache
// i32[P,S] holds the tokens of a sequence in the same pages as its K and V. page_table has room for
// K more tokens, because the guesses behind a sequence's last tokens need places, and the rings
// have 1 + K entries per row. Where drafts of a draft model with W tokens are accepted by rejection
// sampling, draft_probs f32[K,M,W] keeps the distributions that they were drawn from until `accept`
// reads them.
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

// Gives the default of GraphOptions::max_match, the largest number of tokens by which a draft is
// looked up.
inline constexpr int64_t kMaxMatch = 4;
// The number of steps whose tokens the host may leave unread.
inline constexpr int64_t kTokenRingSteps = 128;

// Returns the id that stands for the token that the last step sampled for row `row`.
constexpr int32_t last_token_of(int32_t row) {
  return -2 - row;
}

// Says which rows get logits, which determines the graph's outputs.
enum class LogitsRows : uint8_t {
  // The last row of each sequence gets logits. The outputs are next i32[B], logits f32[B,V] (with
  // several ranks, as gather_logits leaves them), and kScoredOutputs.
  kLast,
  // Each token of the step gets a row of logits. The graph's output is logits f32[T,V].
  kAll,
};
// Describes an output from which every token's logits could be computed. It is kept until the next
// step begins. The outputs are that of attention in the last layer, [T,H*C], and the input of that
// layer, [T,D]. Only rows whose logits are asked for go through the rest of the layer, because a
// feed-forward of the others would be wasted.
struct ScoredOutput {
  std::string_view name;  // name of the score graph's weight
  int index;              // index among the step graph's outputs
};
inline constexpr ScoredOutput kScoredOutputs[] = {{"attended", 2}, {"residual", 3}};

// Holds the scales of a layer whose K and V are kept in 8 bits: the caches hold K / k and V / v. If
// heads have different scales, k and v are the largest scales of all heads, and the scale of a head
// is k or v times the head's share, which is at most 1.
struct KvScale {
  double k = 1;
  double v = 1;
  std::vector<double> k_shares = {};  // each head's scale / k, a power of two; empty: all are 1
  std::vector<double> v_shares = {};
};

class WeightFormats;

// Says how a step decides whether a draft is accepted.
enum class Acceptance : uint8_t {
  // A draft is accepted if it equals the token that the model's sampling chooses at that position,
  // with the same noise. Texts are the same as without drafts.
  kCoupled,
  // A draft that was drawn with probability q is accepted with probability min(1, p / q), where p
  // is its probability by the model. Texts have the same distribution as without drafts, and more
  // drafts are accepted than by equality.
  kRejection,
};

// Describes a model that guesses the tokens of another model. The draft model's vocabulary is that
// model's, or a part of it.
struct DraftModel {
  ModelConfig config;
  const WeightFormats* formats = nullptr;  // formats of its projections; null: floats
};

// Gives the default of GraphOptions::fp8_rows. Activations with at least this many rows, padding
// included, are rounded to FP8 where weights allow it. With fewer rows, reading weights takes
// longer than multiplying, so rounding gains nothing.
inline constexpr int64_t kFp8Rows = 33;

struct GraphOptions {
  DType dtype = DType::kBF16;     // dtype of weights and activations
  std::optional<DType> kv_dtype;  // dtype in which K and V are kept; absent: `dtype`
  int64_t num_pages = 64;         // P
  int64_t page_size = 32;         // S
  int64_t max_seq_len = 4096;     // Units: tokens; N = ceil(max_seq_len / S)
  int64_t max_batch_size = 64;    // M
  LogitsRows logits = LogitsRows::kLast;
  // `num_drafts` (K) is the largest number of tokens that a step guesses for a sequence.
  // `max_match` is the largest number of tokens by which a guess is looked up. REQUIRES:
  // LogitsRows::kLast if num_drafts is above 0.
  int64_t num_drafts = 0;
  int64_t max_match = kMaxMatch;
  std::optional<DraftModel> draft = {};  // absent: drafts are looked up in the sequence's text
  Acceptance acceptance = Acceptance::kCoupled;
  // If true, ranks choose tokens from each other's candidates where they can. Otherwise they gather
  // all logits.
  bool merges_candidates = true;
  std::vector<KvScale> kv_scales;          // scales of each layer, powers of two; empty: all are 1
  const WeightFormats* formats = nullptr;  // formats of the projections; null: floats
  Rank rank = {};                          // the rank whose share is built (model/shard.h)
  int64_t fp8_rows = kFp8Rows;
  std::optional<LoraShape> lora;  // room for adapters; absent: there are none
  // `num_window_pages` is the number of pages of layers with a window, which are a group of their
  // own (kWindowGroup). Absent: all layers use the same pages.
  std::optional<int64_t> num_window_pages = {};
  // If true, steps are repeated in bursts that the host may end, and ranks agree on the step at
  // which a burst ends.
  bool bursts = false;
};

// The groups of states (ir::Value::group). Pages of kWholeGroup hold whole sequences; pages of
// kWindowGroup hold the window of each sequence.
inline constexpr int kWholeGroup = 0;
inline constexpr int kWindowGroup = 1;

// Returns the number of tokens of a sequence that the group of layers with a window must keep: the
// largest window that is shorter than `max_seq_len`. Returns nullopt if no layer has such a window.
std::optional<int64_t> kept_window(const ModelConfig& config, int64_t max_seq_len);

// Builds the graph of one step. Errors: kUnsupported when no builder knows the architecture,
// listing the known ones; those of share_of(), for a rank of several.
ir::Graph build_graph(const ModelConfig& config, const GraphOptions& options);

// The largest number of rows that one run of a score graph scores.
inline constexpr int64_t kScoredRows = 64;

// Builds the score graph, which computes the log probabilities of given tokens. It starts from the
// kScoredOutputs of a step of up to `max_num_tokens` tokens. Its weights are these outputs, and the
// model's weights behind them. Its step inputs are those of `score_input` (backend/step_inputs.h),
// of B rows, at most kScoredRows. The host-visible buffer logprob_ring i32[E,64,42] has room for
// the log probabilities of two steps of `max_num_tokens` tokens. `options` are those of the model.
ir::Graph build_score_graph(const ModelConfig& config, const GraphOptions& options,
                            int64_t max_num_tokens);

// Returns the bytes of K and V of one token, in all layers, kept in `kv_dtype`.
int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype);
// Holds the bytes of K and V of one token: in layers that keep all tokens, and in layers that keep
// a window of them, for sequences of up to `max_seq_len` tokens.
struct KvBytes {
  int64_t whole = 0;
  int64_t window = 0;
};
KvBytes kv_bytes_by_group(const ModelConfig& config, DType kv_dtype, int64_t max_seq_len);

}  // namespace encore::model
