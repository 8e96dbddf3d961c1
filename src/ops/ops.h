// The op set. One row an op, in ops.cc: shape, effects, capture, cost. What each op computes is
// written here, once, for every backend; the CPU kernels in backend/cpu are the reference.
//
// Rows of activations are [R, N] with R = T or B. Kernels accumulate in float and round once, to
// the output's dtype. Elementwise and row ops accept views (rows further apart than they are long).
//
//   embedding      (ids i32[T], table [V,D], fill f32[1], last_tokens i32[M]?) -> [T,D]
//                  row ids[t] of the table; an id of -2 - m means last_tokens[m]; every element
//                  `fill` where that is outside [0, V).
//   linear         (x [R,I], weight [O,I], bias [O]?) {out = dtype} -> [R,O]      x weight^T + bias
//   rms_norm       (x [R,N], weight [G]) {eps} -> [R,N]
//                  each group of G elements: x * rsqrt(mean(x^2) + eps) * weight. G = N for a layer
//                  norm, G = C for a norm per head. The product with weight is taken in float.
//   add, mul       (a [R,N], b [R,N]) -> [R,N]
//   silu           (x [R,N]) -> [R,N]                         x / (1 + exp(-x))
//   rope           (x [T,h*C], positions i32[T], inv_freq f32[C/2]) -> [T,h*C]
//                  each head: (x1, x2) halves rotate by positions[t] * inv_freq[i] ("rotate half").
//   kv_write       (k_cache [P,K,S,C], v_cache, k [T,K*C], v [T,K*C], slots i32[T]) -> (k_cache,
//   v_cache)
//                  slot s is page s / S, place s % S; a slot of -1 writes nothing. Caches may be
//                  of another float dtype, or fp8: values are rounded to it as they are written,
//                  without a scale, and whoever reads them widens them exactly. (Scales for fp8 are
//                  in the weights around a cache: model/kv_scales.h.)
//   attention      (q [T,H*C], k_cache, v_cache, page_table i32[M,N], kv_lens i32[B],
//                   query_starts i32[B+1]) {scale} -> [T,H*C]
//                  sequence b has the pages of row b of page_table (M >= B), in order; entries
//                  behind its last token are not looked at. It owns query rows [query_starts[b],
//                  query_starts[b+1]); they are the last of its kv_lens[b] tokens, and each sees
//                  itself and what came before. Rows that no sequence owns, and rows of a sequence
//                  with kv_lens[b] = 0, are zero in a uniform step and untouched otherwise. In a
//                  uniform step sequence b owns rows [b*q, (b+1)*q) whatever query_starts says.
//   gather_rows    (x [T,N], rows i32[B]) -> [B,N]
//   split          (x [R,N]) {sizes} -> one view per size: columns side by side
//   adjust_logits  (logits f32[B,V], sampling i32[B,14], kv_lens i32[B], stop_tokens i32[B,L],
//                   token_counts i32[M,V], token_bias i32[M,K,2], token_masks i32[M,V/32])
//                  -> f32[B,V]
//                  sampling[b] is a SamplingRow (backend/sampling.h). A row with a `state` adds the
//                  biases of token_bias[state], then applies the penalties by token_counts[state];
//                  in one with a `mask`, tokens whose bit in token_masks[mask] is 0 become
//                  -infinity; where kv_lens[b] < min_length, its stop tokens do. The other rows are
//                  not written.
//   sample         (logits f32[B,V], adjusted f32[B,V], sampling i32[B,14], kv_lens i32[B],
//                   token_counts i32[M,V]) -> (i32[B], token_counts)
//                  a row that adjust_logits writes is taken from there, and its token counts as
//                  generated once more if kv_lens[b] > 0. temperature 0, or below f32's least normal number: the first index of the
//                  largest logit. Else p = softmax(logits / temperature), keep the top_k most
//                  likely (0: all), then the smallest set of those whose sum reaches top_p of
//                  theirs, then those with p >= min_p * max p (ties at a threshold are kept); among
//                  the kept, the largest of logit / temperature + Gumbel noise, noise drawn by
//                  Philox4x32-10 from (seed, kv_lens[b], token). NaN logits never win; a row
//                  without a number gives token 0.
//   log_probs      (logits f32[B,V], next i32[B], sampling i32[B,14], step_clock i32[2],
//                   logprob_ring i32[E,M,42]) -> logprob_ring
//                  logprob_ring[step_clock[0] mod E][b] gets what sampling[b].num_logprobs asks
//                  for (LogprobRow), of logits as the model gives them: log softmax and rank of
//                  next[b], and that many of the likeliest tokens; of equal ones the first.
//   advance        (next i32[B], page_table i32[M,N], stop_tokens i32[B,L], max_lens i32[B],
//                   ids i32[T], positions i32[T], slots i32[T], kv_lens i32[B],
//                   last_tokens i32[M], step_clock i32[2], token_ring i32[E,M], ring_marks i32[32])
//                  {page_size} -> the last eight, each in its place
//                  publishes a step's tokens and makes its inputs those of the next step:
//                  last_tokens[b] and token_ring[step_clock[0] mod E][b] become next[b]; the clock
//                  and, as a release to the host, ring_marks[0] count one more step. In a uniform
//                  step of q = 1, row b with kv_lens[b] > 0 moves on to next[b] at position
//                  kv_lens[b]; where next[b] is one of its stop tokens, its length reaches
//                  max_lens[b], or page_table has -1 or no place for that position, it becomes a
//                  padding row. step_clock[1] is 1
//                  if rows are left and the host's ring_marks[16] is ahead of the clock, else 0:
//                  does a burst go on? Counts wrap; E is a power of two.
//
// Launched between steps, by what the host has to say (runtime/page_table.h, token_state.h):
//   write_pages    (page_table i32[M,N], changes i32[M,2], pages i32[M,N]) -> page_table
//                  where changes[m] is (first, count): entries [first, first + count) of row m
//                  become those of pages.
//   write_token_state (token_counts i32[M,V], token_bias i32[M,K,2], changes i32[M,4], values i32[N])
//                  -> (token_counts, token_bias)
//                  where changes[m] (TokenStateChange) says so, row m of both becomes that of the
//                  tokens and biases among values.
//
// Written by passes:
//   add_rms_norm   (x [R,N], residual [R,N], weight [N]) {eps} -> (sum [R,N], normed [R,N])
//                  sum = x + residual, rounded; normed = rms_norm(sum).
//   silu_mul       (gate [R,N], up [R,N]) -> [R,N]            silu(gate) * up, rounded once
//   rope_kv_write  (q [T,H*C], k [T,K*C], v [T,K*C], positions, inv_freq, slots, k_cache, v_cache,
//                   q_norm [C]?, k_norm [C]?) {eps}? -> (q [T,H*C], k_cache, v_cache)
//                  the norms per head (when given), rope on q and k, then kv_write.
//   fused_attention (q [T,H*C], k [T,K*C], v [T,K*C], positions, inv_freq, slots, k_cache, v_cache,
//                   page_table, kv_lens, query_starts, q_norm [C]?, k_norm [C]?) {scale, eps?}
//                  -> (o [T,H*C], k_cache, v_cache)
//                  rope_kv_write, then attention over what it wrote. In a uniform step the slot of
//                  a sequence's token is where page_table has it, and that of a token that no
//                  sequence owns is -1.
//   fused_linear   (x [R,I], residual [R,I]?, norm [I]?, weight [O,I], bias [O]?)
//                  {prologue = rms_norm | add_rms_norm, eps}? {epilogue = silu_mul}? {out}?
//                  -> (sum [R,I]?, y)
//                  linear with an op in front (x, residual and norm are its inputs, sum its first
//                  output), one behind (which takes the left and the right half of the columns, so
//                  that y is [R,O/2]), or both. Rounded where those ops would round.
#pragma once

#include "ir/op.h"

namespace encore::ops {

// The set above. Copy it and add rows to use ops of your own.
const ir::OpSet& standard();

}  // namespace encore::ops
