#include "base/testing/message_of.h"
#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

constexpr const char* kFusedSiluMul = R"(
  input %gate: bf16[T,64]
  input %up: bf16[T,64]
  %y: bf16[T,64] = silu_mul(%gate, %up)
  output %y
)";

TEST(FuseSiluMul, FusesAnActivationIntoItsProduct) {
  expect_rewrite(fuse_silu_mul, R"(
  input %gate: bf16[T,64]
  input %up: bf16[T,64]
  %s: bf16[T,64] = silu(%gate)
  %y: bf16[T,64] = mul(%s, %up)
  output %y
)",
                 kFusedSiluMul);
}

TEST(FuseSiluMul, TakesTheProductEitherWayRound) {
  expect_rewrite(fuse_silu_mul, R"(
  input %gate: bf16[T,64]
  input %up: bf16[T,64]
  %s: bf16[T,64] = silu(%gate)
  %y: bf16[T,64] = mul(%up, %s)
  output %y
)",
                 kFusedSiluMul);
}

TEST(FuseSiluMul, StandsWhereTheProductStoodForUpMayBeMadeInBetween) {
  expect_rewrite(fuse_silu_mul, R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %s: bf16[T,64] = silu(%x)
  %up: bf16[T,64] = linear(%x, %w)
  %y: bf16[T,64] = mul(%s, %up)
  output %y
)",
                 R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %up: bf16[T,64] = linear(%x, %w)
  %y: bf16[T,64] = silu_mul(%x, %up)
  output %y
)");
}

TEST(FuseSiluMul, FusesEveryMatchOfAChain) {
  expect_rewrite(fuse_silu_mul, R"(
  input %a: bf16[T,64]
  input %b: bf16[T,64]
  input %c: bf16[T,64]
  %sa: bf16[T,64] = silu(%a)
  %ab: bf16[T,64] = mul(%sa, %b)
  %sc: bf16[T,64] = silu(%c)
  %y: bf16[T,64] = mul(%ab, %sc)
  output %y
)",
                 R"(
  input %a: bf16[T,64]
  input %b: bf16[T,64]
  input %c: bf16[T,64]
  %ab: bf16[T,64] = silu_mul(%a, %b)
  %y: bf16[T,64] = silu_mul(%c, %ab)
  output %y
)");
}

TEST(FuseSiluMul, LeavesAnActivationThatAnotherNodeReads) {
  expect_unchanged(fuse_silu_mul, R"(
  input %gate: bf16[T,64]
  input %up: bf16[T,64]
  %s: bf16[T,64] = silu(%gate)
  %y: bf16[T,64] = mul(%s, %up)
  %z: bf16[T,64] = add(%s, %y)
  output %z
)");
}

TEST(FuseSiluMul, LeavesAnActivationThatIsAGraphOutput) {
  expect_unchanged(fuse_silu_mul, R"(
  input %gate: bf16[T,64]
  input %up: bf16[T,64]
  %s: bf16[T,64] = silu(%gate)
  %y: bf16[T,64] = mul(%s, %up)
  output %y
  output %s
)");
}

TEST(FuseSiluMul, LeavesTheSquareOfAnActivation) {
  expect_unchanged(fuse_silu_mul, R"(
  input %gate: bf16[T,64]
  %s: bf16[T,64] = silu(%gate)
  %y: bf16[T,64] = mul(%s, %s)
  output %y
)");
}

TEST(FuseSiluMul, RefusesASetWithoutAnOpThatARuleNames) {
  ir::OpSet ops;
  ops.add(*ops::standard().find("silu"));
  ops.add(*ops::standard().find("mul"));
  Program program(listing::parse("graph g {\n  input %x: bf16[T,64]\n  output %x\n}\n", ops));
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { fuse_silu_mul(program, ops); }),
            "the rule '%y = silu_mul(%gate, %up)' names an op 'silu_mul' that there is not");
}

}  // namespace
}  // namespace encore::passes
