// From a config to the graph of one step: embedding, layers, last-token gather, logits, sampling.
//
// The graph's step inputs, by name (T tokens, B sequences):
//   ids i32[T]          the token; -2 - b: what the last step sampled for its row b; -1 in padding
//                       rows
//   positions i32[T]    its place in its sequence
//   slots i32[T]        where its K and V go: page * page_size + place; -1: nowhere
//   page_table i32[B,N] the pages of each sequence, in order
//   kv_lens i32[B]      tokens of each sequence after this step, 0 in padding rows
//   query_starts i32[B+1]  first row of each sequence, then T
//   last_rows i32[B]    the row whose logits count
//   stop_tokens i32[B,8]  each ends the sequence; -1: none
//   max_lens i32[B]     tokens at which the sequence ends
//   temperature, top_p, min_p f32[B], top_k i32[B], seed i64[B]   sampling, see `sample` in ops.h
//   fill f32[1]         what the embedding of a padding row holds
//
// At its end a step publishes its tokens and makes these inputs those of the next step (`advance`
// in ops.h). The carries and mailboxes for it, M sequences at most: last_tokens i32[M],
// step_clock i32[2], token_ring i32[128,M], ring_marks i32[32]. Without logits of the last rows
// there is no such end, and no input of its own.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/graph.h"
#include "model/config.h"

namespace encore::model {

// Stop tokens of a sequence that a step can tell by itself.
inline constexpr int64_t kMaxStopTokens = 8;
// Steps whose tokens the host may leave unread.
inline constexpr int64_t kTokenRingSteps = 128;

// As an id: what the last step sampled for that row.
constexpr int32_t last_token_of(int32_t row) {
  return -2 - row;
}

// Which rows get logits, and what the graph's outputs are.
enum class LogitsRows : uint8_t {
  kLast,  // the last of each sequence; outputs: next i32[B], logits f32[B,V]
  kAll,   // every token's; outputs: logits f32[T,V]
};

struct GraphOptions {
  DType dtype = DType::kBF16;     // of weights and activations
  std::optional<DType> kv_dtype;  // of K and V as they are kept; absent: dtype
  int64_t num_pages = 64;         // P
  int64_t page_size = 32;         // S
  int64_t max_seq_len = 4096;     // Units: tokens; N = ceil(max_seq_len / S)
  int64_t max_batch_size = 64;    // M
  LogitsRows logits = LogitsRows::kLast;
};

// Errors: kUnsupported when no builder knows the architecture, listing those that exist.
ir::Graph build_graph(const ModelConfig& config, const GraphOptions& options);

// Bytes of K and V that one token takes over all layers, kept in `kv_dtype`.
int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype);

}  // namespace encore::model
