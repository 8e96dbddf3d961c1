#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

TEST(FuseLinearEpilogue, TakesTheProductOfTheTwoHalves) {
  expect_rewrite(fuse_linear_epilogue, R"(
  input %x: bf16[T,64]
  weight %w: bf16[192,64] = concat("gate", "up")
  weight %b: bf16[192] = concat("gate.bias", "up.bias")
  %gu: bf16[T,192] = linear(%x, %w, bias=%b)
  %g: bf16[T,96], %u: bf16[T,96] = split(%gu) {sizes=[96,96]}
  %y: bf16[T,96] = silu_mul(%g, %u)
  output %y
)",
                 R"(
  input %x: bf16[T,64]
  weight %w: bf16[192,64] = concat("gate", "up")
  weight %b: bf16[192] = concat("gate.bias", "up.bias")
  %y: bf16[T,96] = fused_linear(%x, %w, bias=%b) {epilogue=silu_mul}
  output %y
)");
}

TEST(FuseLinearEpilogue, JoinsAPrologue) {
  expect_rewrite(fuse_linear_epilogue, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[192,64] = concat("gate", "up")
  %s: bf16[T,64], %gu: bf16[T,192] = fused_linear(%x, residual=%r, norm=%n, %w) {eps=1e-05}
  %g: bf16[T,96], %u: bf16[T,96] = split(%gu) {sizes=[96,96]}
  %y: bf16[T,96] = silu_mul(%g, %u)
  output %y
  output %s
)",
                 R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[192,64] = concat("gate", "up")
  %s: bf16[T,64], %y: bf16[T,96] = fused_linear(%x, residual=%r, norm=%n, %w) {eps=1e-05, epilogue=silu_mul}
  output %y
  output %s
)");
}

TEST(FuseLinearEpilogue, LeavesHalvesInTheOtherOrder) {
  expect_unchanged(fuse_linear_epilogue, R"(
  input %x: bf16[T,64]
  weight %w: bf16[192,64] = concat("up", "gate")
  %ug: bf16[T,192] = linear(%x, %w)
  %u: bf16[T,96], %g: bf16[T,96] = split(%ug) {sizes=[96,96]}
  %y: bf16[T,96] = silu_mul(%g, %u)
  output %y
)");
}

TEST(FuseLinearEpilogue, LeavesHalvesThatOthersRead) {
  expect_unchanged(fuse_linear_epilogue, R"(
  input %x: bf16[T,64]
  weight %w: bf16[192,64] = concat("gate", "up")
  %gu: bf16[T,192] = linear(%x, %w)
  %g: bf16[T,96], %u: bf16[T,96] = split(%gu) {sizes=[96,96]}
  %y: bf16[T,96] = silu_mul(%g, %u)
  %z: bf16[T,96] = add(%y, %u)
  output %z
)");
}

TEST(FuseLinearEpilogue, LeavesPartsOfAWiderProduct) {
  expect_unchanged(fuse_linear_epilogue, R"(
  input %x: bf16[T,64]
  weight %w: bf16[288,64] = concat("gate", "up", "other")
  %guo: bf16[T,288] = linear(%x, %w)
  %g: bf16[T,96], %u: bf16[T,96], %o: bf16[T,96] = split(%guo) {sizes=[96,96,96]}
  %y: bf16[T,96] = silu_mul(%g, %u)
  %z: bf16[T,96] = add(%y, %o)
  output %z
)");
}

TEST(FuseLinearEpilogue, LeavesAProductThatIsAnOutput) {
  expect_unchanged(fuse_linear_epilogue, R"(
  input %x: bf16[T,64]
  weight %w: bf16[192,64] = concat("gate", "up")
  %gu: bf16[T,192] = linear(%x, %w)
  %g: bf16[T,96], %u: bf16[T,96] = split(%gu) {sizes=[96,96]}
  %y: bf16[T,96] = silu_mul(%g, %u)
  output %y
  output %gu
)");
}

// The silu_mul of this graph takes the halves of the linear's other output: the sum that the norm
// in front adds.
TEST(FuseLinearEpilogue, LeavesTheSumOfAPrologue) {
  expect_unchanged(fuse_linear_epilogue, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[32,64] = "w"
  %s: bf16[T,64], %y: bf16[T,32] = fused_linear(%x, residual=%r, norm=%n, %w) {eps=1e-05}
  %g: bf16[T,32], %u: bf16[T,32] = split(%s) {sizes=[32,32]}
  %z: bf16[T,32] = silu_mul(%g, %u)
  output %y
  output %z
)");
}

}  // namespace
}  // namespace encore::passes
