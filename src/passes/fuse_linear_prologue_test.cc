#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

TEST(FuseLinearPrologue, TakesTheNormInFront) {
  expect_rewrite(fuse_linear_prologue, R"(
  input %x: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[96,64] = "w"
  weight %b: bf16[96] = "b"
  %h: bf16[T,64] = rms_norm(%x, %n) {eps=1e-06}
  %y: bf16[T,96] = linear(%h, %w, bias=%b)
  output %y
)",
                 R"(
  input %x: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[96,64] = "w"
  weight %b: bf16[96] = "b"
  %y: bf16[T,96] = fused_linear(%x, norm=%n, %w, bias=%b) {eps=1e-06}
  output %y
)");
}

TEST(FuseLinearPrologue, TakesTheAdditionAndKeepsItsSum) {
  expect_rewrite(fuse_linear_prologue, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[64,64] = "w"
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %n) {eps=1e-05}
  %y: bf16[T,64] = linear(%h, %w)
  %z: bf16[T,64] = add(%s, %y)
  output %z
)",
                 R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[64,64] = "w"
  %s: bf16[T,64], %y: bf16[T,64] = fused_linear(%x, residual=%r, norm=%n, %w) {eps=1e-05}
  %z: bf16[T,64] = add(%s, %y)
  output %z
)");
}

TEST(FuseLinearPrologue, KeepsTheDtypeOfTheOutput) {
  expect_rewrite(fuse_linear_prologue, R"(
  input %x: bf16[B,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[128,64] = "w"
  %h: bf16[B,64] = rms_norm(%x, %n) {eps=1e-05}
  %y: f32[B,128] = linear(%h, %w) {out=f32}
  output %y
)",
                 R"(
  input %x: bf16[B,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[128,64] = "w"
  %y: f32[B,128] = fused_linear(%x, norm=%n, %w) {eps=1e-05, out=f32}
  output %y
)");
}

TEST(FuseLinearPrologue, LeavesANormThatOthersRead) {
  expect_unchanged(fuse_linear_prologue, R"(
  input %x: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[64,64] = "w"
  weight %u: bf16[64,64] = "u"
  %h: bf16[T,64] = rms_norm(%x, %n) {eps=1e-05}
  %y: bf16[T,64] = linear(%h, %w)
  %z: bf16[T,64] = linear(%h, %u)
  output %y
  output %z
)");
}

TEST(FuseLinearPrologue, LeavesANormThatIsAnOutput) {
  expect_unchanged(fuse_linear_prologue, R"(
  input %x: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[64,64] = "w"
  %h: bf16[T,64] = rms_norm(%x, %n) {eps=1e-05}
  %y: bf16[T,64] = linear(%h, %w)
  output %y
  output %h
)");
}

TEST(FuseLinearPrologue, LeavesANormPerHead) {
  expect_unchanged(fuse_linear_prologue, R"(
  input %x: bf16[T,64]
  weight %n: bf16[32] = "n"
  weight %w: bf16[64,64] = "w"
  %h: bf16[T,64] = rms_norm(%x, %n) {eps=1e-05}
  %y: bf16[T,64] = linear(%h, %w)
  output %y
)");
}

TEST(FuseLinearPrologue, LeavesALinearOfTheSum) {
  expect_unchanged(fuse_linear_prologue, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[64,64] = "w"
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %n) {eps=1e-05}
  %y: bf16[T,64] = linear(%s, %w)
  %z: bf16[T,64] = add(%y, %h)
  output %z
)");
}

// Operands that a rule does not name must be operands of the fused op as well, or the rule does not
// apply. So the scale of this weight is not lost.
TEST(FuseLinearPrologue, LeavesALinearWithAnOperandThatTheFusedOpDoesNotKnow) {
  static const ir::OpSet kOps =
      ops_with("linear", "x float[R,I], weight float[O,I], weight_scale? f32[O]");
  const std::string text =
      "graph g {\n  input %x: bf16[T,64]\n  weight %n: bf16[64] = \"n\"\n"
      "  weight %w: bf16[96,64] = \"w\"\n  weight %s: f32[96] = \"s\"\n"
      "  %h: bf16[T,64] = rms_norm(%x, %n) {eps=1e-05}\n"
      "  %y: bf16[T,96] = linear(%h, %w, weight_scale=%s)\n  output %y\n}\n";
  Program program(listing::parse(text, kOps));
  fuse_linear_prologue(program, kOps);
  EXPECT_EQ(listing::print(program.graph), text);
}

TEST(FuseLinearPrologue, LeavesANormWithABiasWhichIsNotTheProducts) {
  static const ir::OpSet kOps =
      ops_with("rms_norm", "x float[R,H*G], weight float[G], bias? float[G]");
  const auto with = [](const std::string& norm_bias, const std::string& bias) {
    return "graph g {\n  input %x: bf16[T,64]\n  weight %n: bf16[64] = \"n\"\n"
           "  weight %w: bf16[64,64] = \"w\"\n  weight %b: bf16[64] = \"b\"\n"
           "  %h: bf16[T,64] = rms_norm(%x, %n" +
           norm_bias + ") {eps=1e-05}\n  %y: bf16[T,64] = linear(%h, %w" + bias +
           ")\n  output %y\n}\n";
  };
  const auto fused = [&](const std::string& text) {
    Program program(listing::parse(text, kOps));
    fuse_linear_prologue(program, kOps);
    return listing::print(program.graph);
  };
  EXPECT_EQ(fused(with(", bias=%b", "")), with(", bias=%b", ""));
  EXPECT_NE(fused(with("", ", bias=%b")).find("fused_linear(%x, norm=%n, %w, bias=%b)"),
            std::string::npos);
}

// If the addition were fused into the linear, the sum would be made after the node that reads it
// first.
TEST(FuseLinearPrologue, LeavesASumThatIsReadBeforeTheLinear) {
  expect_unchanged(fuse_linear_prologue, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %n: bf16[64] = "n"
  weight %w: bf16[64,64] = "w"
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %n) {eps=1e-05}
  %early: bf16[T,64] = silu(%s)
  %y: bf16[T,64] = linear(%h, %w)
  output %y
  output %early
)");
}

}  // namespace
}  // namespace encore::passes
