#include <gtest/gtest.h>

#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

constexpr const char* kFusedAllReduce = R"(
  input %p: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  %s: bf16[T,64], %h: bf16[T,64] = all_reduce_add_rms_norm(%p, %r, %w) {of=layer, eps=1e-05}
  output %s
  output %h
)";

TEST(FuseAllReduceRmsNorm, TakesTheSumOfTheRanksIntoTheNormBehindIt) {
  expect_rewrite(fuse_all_reduce_rms_norm, R"(
  input %p: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  %x: bf16[T,64] = all_reduce(%p) {of=layer}
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %w) {eps=1e-05}
  output %s
  output %h
)",
                 kFusedAllReduce);
}

TEST(FuseAllReduceRmsNorm, TakesTheResidualEitherWayRound) {
  expect_rewrite(fuse_all_reduce_rms_norm, R"(
  input %p: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  %x: bf16[T,64] = all_reduce(%p) {of=layer}
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%r, residual=%x, %w) {eps=1e-05}
  output %s
  output %h
)",
                 kFusedAllReduce);
}

TEST(FuseAllReduceRmsNorm, LeavesASumThatSomebodyElseReads) {
  expect_unchanged(fuse_all_reduce_rms_norm, R"(
  input %p: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  %x: bf16[T,64] = all_reduce(%p) {of=layer}
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %w) {eps=1e-05}
  %y: bf16[T,64] = silu(%x)
  output %s
  output %h
  output %y
)");
}

TEST(FuseAllReduceRmsNorm, LeavesANormOfTheSumAlone) {
  expect_unchanged(fuse_all_reduce_rms_norm, R"(
  input %p: bf16[T,64]
  weight %w: bf16[64] = "w"
  %x: bf16[T,64] = all_reduce(%p) {of=layer}
  %h: bf16[T,64] = rms_norm(%x, %w) {eps=1e-05}
  output %h
)");
}

// The fused op normalizes whole rows only, not single heads.
TEST(FuseAllReduceRmsNorm, LeavesANormOfHeads) {
  expect_unchanged(fuse_all_reduce_rms_norm, R"(
  input %p: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[16] = "w"
  %x: bf16[T,64] = all_reduce(%p) {of=layer}
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %w) {eps=1e-05}
  output %s
  output %h
)");
}

}  // namespace
}  // namespace encore::passes
