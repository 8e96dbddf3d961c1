#include "base/testing/message_of.h"
#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

TEST(FuseAddRmsNorm, KeepsTheSumAsTheResidualStream) {
  expect_rewrite(fuse_add_rms_norm, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  %s: bf16[T,64] = add(%x, %r)
  %h: bf16[T,64] = rms_norm(%s, %w) {eps=1e-05}
  %y: bf16[T,64] = add(%s, %h)
  output %y
)",
                 R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %w) {eps=1e-05}
  %y: bf16[T,64] = add(%s, %h)
  output %y
)");
}

TEST(FuseAddRmsNorm, StandsBeforeTheSumsOtherReaders) {
  expect_rewrite(fuse_add_rms_norm, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  %s: bf16[T,64] = add(%x, %r)
  %early: bf16[T,64] = silu(%s)
  %h: bf16[T,64] = rms_norm(%s, %w) {eps=1e-06}
  output %h
  output %early
)",
                 R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %w) {eps=1e-06}
  %early: bf16[T,64] = silu(%s)
  output %h
  output %early
)");
}

TEST(FuseAddRmsNorm, GivesTheSumToTheFirstOfTwoNorms) {
  expect_rewrite(fuse_add_rms_norm, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  weight %u: bf16[64] = "u"
  %s: bf16[T,64] = add(%x, %r)
  %h: bf16[T,64] = rms_norm(%s, %w) {eps=1e-05}
  %g: bf16[T,64] = rms_norm(%s, %u) {eps=1e-05}
  output %h
  output %g
)",
                 R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  weight %u: bf16[64] = "u"
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %w) {eps=1e-05}
  %g: bf16[T,64] = rms_norm(%s, %u) {eps=1e-05}
  output %h
  output %g
)");
}

TEST(FuseAddRmsNorm, TakesANormNarrowerThanTheRow) {
  expect_rewrite(fuse_add_rms_norm, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[32] = "w"
  %s: bf16[T,64] = add(%x, %r)
  %h: bf16[T,64] = rms_norm(%s, %w) {eps=1e-05}
  output %h
)",
                 R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[32] = "w"
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%x, residual=%r, %w) {eps=1e-05}
  output %h
)");
}

TEST(FuseAddRmsNorm, LeavesANormOfSomethingElseThanASum) {
  expect_unchanged(fuse_add_rms_norm, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  weight %w: bf16[64] = "w"
  %s: bf16[T,64] = mul(%x, %r)
  %h: bf16[T,64] = rms_norm(%s, %w) {eps=1e-05}
  %g: bf16[T,64] = rms_norm(%x, %w) {eps=1e-05}
  output %h
  output %g
)");
}

// Rows are gathered between the sum and the norm, so the norm's input is not the sum.
TEST(FuseAddRmsNorm, LeavesANormOfGatheredRows) {
  expect_unchanged(fuse_add_rms_norm, R"(
  input %x: bf16[T,64]
  input %r: bf16[T,64]
  input %rows: i32[B]
  weight %w: bf16[64] = "w"
  %s: bf16[T,64] = add(%x, %r)
  %last: bf16[B,64] = gather_rows(%s, %rows)
  %h: bf16[B,64] = rms_norm(%last, %w) {eps=1e-05}
  output %h
)");
}

TEST(FuseAddRmsNorm, RefusesASetWhoseNormTakesNoResidualWhichARuleNames) {
  static const ir::OpSet kOps = ops_with("rms_norm", "x float[R,H*G], weight float[G]");
  Program program(listing::parse("graph g {\n  input %x: bf16[T,64]\n  output %x\n}\n", kOps));
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { fuse_add_rms_norm(program, kOps); }),
            "the rule '%s, %h = rms_norm(%x, %w, residual=%r)' names an operand 'residual' that "
            "rms_norm has not");
}

// The norm's weight is made after the sum, so the fused node cannot stand in the place of the sum.
TEST(FuseAddRmsNorm, LeavesANormWhoseWeightIsMadeAfterTheSum) {
  static const ir::OpSet kOps = [] {
    ir::OpSet ops;
    for (const auto& [name, row] : ops::standard().rows())
      ops.add(row);
    ops.add({.name = "copy", .inputs = "x any[...]", .outputs = "y = x"});
    return ops;
  }();
  const std::string text =
      "graph g {\n  input %x: bf16[T,64]\n  weight %w: bf16[64] = \"w\"\n"
      "  %s: bf16[T,64] = add(%x, %x)\n  %w1: bf16[64] = copy(%w)\n"
      "  %h: bf16[T,64] = rms_norm(%s, %w1) {eps=1e-05}\n  output %h\n}\n";
  Program program(listing::parse(text, kOps));
  fuse_add_rms_norm(program, kOps);
  EXPECT_EQ(listing::print(program.graph), text);
}

}  // namespace
}  // namespace encore::passes
