#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

TEST(FuseRoute, TakesTheNormAndTheRoutersProduct) {
  expect_rewrite(fuse_route, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  input %live: i32[T] pad -1
  weight %n: bf16[64] = "n"
  weight %w: bf16[8,64] = "w"
  weight %b: f32[8] = "b"
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %n) {eps=1e-06}
  %l: f32[T,8] = linear(%h, %w) {out=f32}
  %e: i32[T,2], %p: f32[T,2] = route(%l, bias=%b, %live) {top_k=2, renormalize=1, least=0, score=sigmoid}
  %z: bf16[T,64] = add(%s, %h)
  output %z
  output %e
  output %p
)",
                 R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  input %live: i32[T] pad -1
  weight %n: bf16[64] = "n"
  weight %w: bf16[8,64] = "w"
  weight %b: f32[8] = "b"
  %s: bf16[T,64], %h: bf16[T,64], %e: i32[T,2], %p: f32[T,2] = fused_route(%x, residual=%r, %n, %w, bias=%b, %live) {eps=1e-06, out=f32, top_k=2, renormalize=1, least=0, score=sigmoid}
  %z: bf16[T,64] = add(%s, %h)
  output %z
  output %e
  output %p
)");
}

// The fused op would take the bias of the product for the bias that `route` adds to scores.
TEST(FuseRoute, LeavesARouterWhoseProductHasABias) {
  expect_unchanged(fuse_route, R"(
  input %x: bf16[T,64]
  input %live: i32[T] pad -1
  weight %n: bf16[64] = "n"
  weight %w: bf16[8,64] = "w"
  weight %b: bf16[8] = "b"
  %h: bf16[T,64] = rms_norm(%x, %n) {eps=1e-06}
  %l: f32[T,8] = linear(%h, %w, bias=%b) {out=f32}
  %e: i32[T,2], %p: f32[T,2] = route(%l, %live) {top_k=2, renormalize=1, least=0}
  output %h
  output %e
  output %p
)");
}

TEST(FuseRoute, LeavesLogitsThatOthersRead) {
  expect_unchanged(fuse_route, R"(
  input %x: bf16[T,64]
  input %live: i32[T] pad -1
  weight %n: bf16[64] = "n"
  weight %w: bf16[8,64] = "w"
  %h: bf16[T,64] = rms_norm(%x, %n) {eps=1e-06}
  %l: f32[T,8] = linear(%h, %w) {out=f32}
  %e: i32[T,2], %p: f32[T,2] = route(%l, %live) {top_k=2, renormalize=1, least=0}
  output %l
  output %e
  output %p
)");
}

}  // namespace
}  // namespace encore::passes
