// The op set. One row an op, in ops.cc: operands, effects, cost. What each op computes is written
// here, once, for every backend; tests/conformance/reference.cc is written from it.
//
// Rows of activations are [R,N] with R = T or B. Kernels accumulate in float and round once, to the
// output's dtype. Elementwise and row ops accept views (rows further apart than they are long).
//
//   embedding      row ids[t] of the table; an id of -2 - m means last_tokens[m]; every element
//                  `fill` where that is outside [0, V).
//   linear         x weight^T + bias, in the dtype that the attribute `out` says, or else x's.
//   rms_norm       each group of G elements: x * rsqrt(mean(x^2) + eps) * weight. G = N for a layer
//                  norm, G = C for a norm per head. The product with weight is taken in float.
//   add, mul       of a and b, element by element.
//   silu           x / (1 + exp(-x))
//   rope           each head: (x1, x2) halves rotate by positions[t] * inv_freq[i] ("rotate half").
//   kv_write       slot s is page s / S, place s % S; a slot of -1 writes nothing. Caches may be
//                  of another float dtype, or fp8: values are rounded to it as they are written,
//                  without a scale, and whoever reads them widens them exactly. (Scales for fp8 are
//                  in the weights around a cache: model/kv_scales.h.)
//   attention      sequence b has the pages of row b of page_table (M >= B), in order; entries
//                  behind its last token are not looked at. It owns query rows [query_starts[b],
//                  query_starts[b+1]); they are the last of its kv_lens[b] tokens, and each sees
//                  itself and what came before. Rows that no sequence owns, and rows of a sequence
//                  with kv_lens[b] = 0, are zero in a uniform step and untouched otherwise. In a
//                  uniform step sequence b owns rows [b*q, (b+1)*q) whatever query_starts says.
//   gather_rows    rows of x.
//   split          one view per size in `sizes`: columns side by side.
//   adjust_logits  sampling[b] is a SamplingRow (backend/sampling.h). A row with a `state` adds the
//                  biases of token_bias[state], then applies the penalties by token_counts[state];
//                  in one with a `mask`, tokens whose bit in token_masks[mask] is 0 become
//                  -infinity; where kv_lens[b] < min_length, its stop tokens do. The other rows are
//                  not written.
//   sample         a row that adjust_logits writes is taken from there, and its token counts as
//                  generated once more if kv_lens[b] > 0. temperature 0, or below f32's least normal
//                  number: the first index of the largest logit. Else, among the tokens that the
//                  row's SamplingParams keep, the largest of logit / temperature + Gumbel noise,
//                  drawn by Philox4x32-10 from (seed, kv_lens[b], token). NaN logits never win; a
//                  row without a number gives token 0.
//   log_probs      logprob_ring[step_clock[0] mod E][b] gets what sampling[b].num_logprobs asks
//                  for (LogprobRow), of logits as the model gives them: log softmax and rank of
//                  next[b], and that many of the likeliest tokens; of equal ones the first.
//   advance        publishes a step's tokens and makes its inputs those of the next step:
//                  last_tokens[b] and token_ring[step_clock[0] mod E][b] become next[b]; the clock
//                  and, as a release to the host, ring_marks[0] count one more step. In a uniform
//                  step of q = 1, row b with kv_lens[b] > 0 moves on to next[b] at position
//                  kv_lens[b]; where next[b] is one of its stop tokens, its length reaches
//                  max_lens[b], or page_table has -1 or no place for that position, it becomes a
//                  padding row. step_clock[1] is 1 if rows are left and the host's ring_marks[16] is
//                  ahead of the clock, else 0: does a burst go on? Counts wrap; E is a power of two.
//
// Launched between steps, by what the host has to say (runtime/page_table.h, token_state.h):
//   write_pages    where changes[m] is (first, count): entries [first, first + count) of row m
//                  become those of pages.
//   write_token_state  where changes[m] (TokenStateChange) says so, row m of both becomes that of the
//                  tokens and biases among values.
//
// Written by passes:
//   add_rms_norm   sum = x + residual, rounded; y = rms_norm(sum).
//   silu_mul       silu(gate) * up, rounded once.
//   rope_kv_write  the norms per head (when given), rope on q and k, then kv_write.
//   fused_attention  rope_kv_write, then attention over what it wrote. In a uniform step the slot of
//                  a sequence's token is where page_table has it, and that of a token that no
//                  sequence owns is -1.
//   fused_linear   linear behind rms_norm (where there is a norm) or add_rms_norm (of x and
//                  residual, whose sum is the first output), in front of silu_mul (`epilogue`; of the
//                  left and the right half of the columns, so that y is [R,O/2]), or both. Rounded
//                  where those ops would round.
#pragma once

#include "ir/op.h"

namespace encore::ops {

// The set above. Copy it and add rows to use ops of your own.
const ir::OpSet& standard();

}  // namespace encore::ops
