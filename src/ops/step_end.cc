// The ops at the end of a step, which choose its tokens and make its inputs those of the next, and
// those that are launched between steps.
#include "ops/shapes.h"

namespace encore::ops {
namespace {

using ir::Attrs;
using ir::Capture;
using ir::Dim;
using ir::Type;

bool is_power_of_two(int64_t n) {
  return n > 0 && (n & (n - 1)) == 0;
}

bool is_logits(const Type& type) {
  return type.dtype == DType::kF32 && is_matrix(type);
}

// A tensor of integers that has a row for each row of `logits`.
bool has_rows_of(const Type& type, const Type& logits, size_t rank) {
  return type.dtype == DType::kI32 && type.dims.size() == rank && type.dims[0] == logits.dims[0];
}

bool are_token_counts(const Type& type, const Type& logits) {
  return is_table(type) && type.dims[1] == logits.dims[1];
}

std::vector<Type> infer_adjust_logits(Types in, const Attrs&) {
  require(is_logits(in[0]) && has_rows_of(in[1], in[0], 2) && has_rows_of(in[2], in[0], 1) &&
              has_rows_of(in[3], in[0], 2) && are_token_counts(in[4], in[0]) &&
              in[5].dtype == DType::kI32 && in[5].dims.size() == 3 &&
              in[5].dims[0] == in[4].dims[0] && in[5].dims[2] == Dim(2) && is_table(in[6]) &&
              in[6].dims[0] == in[4].dims[0] &&
              in[6].dims[1] == Dim((in[0].dims[1].value + 31) / 32),
          "logits f32[B,V], sampling i32[B,W], kv_lens i32[B], stop_tokens i32[B,L], "
          "token_counts i32[M,V], token_bias i32[M,K,2], token_masks i32[M,V/32]",
          in);
  return {in[0]};
}

std::vector<Type> infer_sample(Types in, const Attrs&) {
  require(is_logits(in[0]) && in[1] == in[0] && has_rows_of(in[2], in[0], 2) &&
              has_rows_of(in[3], in[0], 1) && are_token_counts(in[4], in[0]),
          "logits f32[B,V], adjusted f32[B,V], sampling i32[B,W], kv_lens i32[B], "
          "token_counts i32[M,V]",
          in);
  return {{DType::kI32, {in[0].dims[0]}}, in[4]};
}

std::vector<Type> infer_log_probs(Types in, const Attrs&) {
  require(is_logits(in[0]) && has_rows_of(in[1], in[0], 1) && has_rows_of(in[2], in[0], 2) &&
              is_vector(in[3], DType::kI32) && in[3].dims[0] == Dim(2) &&
              in[4].dtype == DType::kI32 && in[4].dims.size() == 3 &&
              is_power_of_two(in[4].dims[0].value),
          "logits f32[B,V], next i32[B], sampling i32[B,W], step_clock i32[2], "
          "logprob_ring i32[E,M,W], E a power of two",
          in);
  return {in[4]};
}

std::vector<Type> infer_write_token_state(Types in, const Attrs&) {
  require(is_table(in[0]) && in[1].dtype == DType::kI32 && in[1].dims.size() == 3 &&
              in[1].dims[0] == in[0].dims[0] && in[2].dtype == DType::kI32 &&
              in[2].dims == std::vector<Dim>{in[0].dims[0], 4} && is_vector(in[3], DType::kI32),
          "token_counts i32[M,V], token_bias i32[M,K,2], changes i32[M,4], values i32[N]", in);
  return {in[0], in[1]};
}

std::vector<Type> infer_advance(Types in, const Attrs& attrs) {
  static constexpr size_t kRanks[] = {1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 1};
  bool fits = attrs.get_int("page_size") > 0;
  for (size_t i = 0; i < in.size(); ++i)
    fits &= in[i].dtype == DType::kI32 && in[i].dims.size() == kRanks[i];
  require(fits, "twelve i32 tensors and a page_size", in);
  const Dim sequences = in[0].dims[0];
  const Dim tokens = in[4].dims[0];
  for (const int i : {2, 3, 7})
    fits &= in[i].dims[0] == sequences;
  for (const int i : {5, 6})
    fits &= in[i].dims[0] == tokens;
  require(fits && is_table(in[1]),
          "rows over M (page_table), B (stop_tokens, max_lens, kv_lens) and T", in);
  require(in[10].dims[1] == in[8].dims[0] && is_power_of_two(in[10].dims[0].value),
          "token_ring i32[E,M] beside last_tokens i32[M], E a power of two", in);
  require(in[9].dims[0] == Dim(2) && in[11].dims[0] == Dim(32),
          "step_clock i32[2] and ring_marks i32[32]", in);
  return {in.begin() + 4, in.end()};
}

std::vector<Type> infer_write_pages(Types in, const Attrs&) {
  require(is_table(in[0]) && in[2] == in[0] && in[1].dtype == DType::kI32 &&
              in[1].dims == std::vector<Dim>{in[0].dims[0], 2},
          "page_table i32[M,N], changes i32[M,2], pages i32[M,N]", in);
  return {in[0]};
}

}  // namespace

std::vector<ir::Op> step_end_rows() {
  return {
      {.name = "adjust_logits",
       .min_inputs = 7,
       .max_inputs = 7,
       .infer = infer_adjust_logits,
       .awaits_host = true},
      {.name = "sample",
       .min_inputs = 5,
       .max_inputs = 5,
       .infer = infer_sample,
       .mutates = {{1, 4}}},
      {.name = "log_probs",
       .min_inputs = 5,
       .max_inputs = 5,
       .infer = infer_log_probs,
       .mutates = {{0, 4}}},
      {.name = "advance",
       .min_inputs = 12,
       .max_inputs = 12,
       .infer = infer_advance,
       .capture = Capture::kFull,
       .mutates = {{0, 4}, {1, 5}, {2, 6}, {3, 7}, {4, 8}, {5, 9}, {6, 10}, {7, 11}}},
      {.name = "write_pages",
       .min_inputs = 3,
       .max_inputs = 3,
       .infer = infer_write_pages,
       .mutates = {{0, 0}}},
      {.name = "write_token_state",
       .min_inputs = 4,
       .max_inputs = 4,
       .infer = infer_write_token_state,
       .mutates = {{0, 0}, {1, 1}}},
  };
}

}  // namespace encore::ops
