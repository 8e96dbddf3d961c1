#include "passes/testing/attention_inputs.h"
#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

TEST(RestoreInPlace, OverwritesAnInputThatDies) {
  expect_rewrite(restore_in_place, R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%a)
  output %b
)",
                 R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] over %a = silu(%a)
  output %b
)");
}

TEST(RestoreInPlace, KeepsAStateAtItsAddress) {
  expect_rewrite(restore_in_place, R"(
  input %k: bf16[T,32]
  input %slots: i32[T] pad -1
  state %kc: bf16[4,1,16,32]
  state %vc: bf16[4,1,16,32]
  %kc1: bf16[4,1,16,32], %vc1: bf16[4,1,16,32] = kv_write(%kc, %vc, %k, %k, %slots)
)",
                 R"(
  input %k: bf16[T,32]
  input %slots: i32[T] pad -1
  state %kc: bf16[4,1,16,32]
  state %vc: bf16[4,1,16,32]
  %kc1: bf16[4,1,16,32] over %kc, %vc1: bf16[4,1,16,32] over %vc = kv_write(%kc, %vc, %k, %k, %slots)
)");
}

// The sum takes the memory of the residual stream, and the normalized output takes the memory of
// the other addend.
TEST(RestoreInPlace, GivesEachOutputAnInputOfItsOwn) {
  expect_rewrite(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[64] = "w"
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%x)
  %s: bf16[T,64], %h: bf16[T,64] = rms_norm(%a, residual=%b, %w) {eps=1e-05}
  output %s
  output %h
)",
                 R"(
  input %x: bf16[T,64]
  weight %w: bf16[64] = "w"
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%x)
  %s: bf16[T,64] over %a, %h: bf16[T,64] over %b = rms_norm(%a, residual=%b, %w) {eps=1e-05}
  output %s
  output %h
)");
}

TEST(RestoreInPlace, PassesOverAnOutputThatIsNotThere) {
  static const ir::OpSet kOps = [] {
    ir::OpSet ops;
    ops.add(*ops::standard().find("silu"));
    ops.add({.name = "maybe_sum",
             .inputs = "x float[R,N], other? float[R,N]",
             .outputs = "sum? = other, y = x",
             .infer =
                 [](const ir::Types& in, const ir::Attrs&, ir::Types& out) {
                   out = {{"sum", in.find("other")}, {"y", in["x"]}};
                 },
             .may_reuse = {{"sum", "x"}, {"y", "other"}, {"y", "x"}}});
    return ops;
  }();
  Program program(
      listing::parse("graph g {\n  input %x: bf16[T,64]\n  %a: bf16[T,64] = silu(%x)\n"
                     "  %y: bf16[T,64] = maybe_sum(%a)\n  output %y\n}\n",
                     kOps));
  restore_in_place(program, kOps);
  EXPECT_EQ(program.graph.nodes()[1].in_place, (std::vector<ir::InPlace>{{"y", "x"}}));
}

TEST(RestoreInPlace, TakesTheOtherOperandWhenTheFirstIsStillNeeded) {
  expect_rewrite(restore_in_place, R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%x)
  %c: bf16[T,64] = add(%a, %b)
  output %a
  output %c
)",
                 R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%x)
  %c: bf16[T,64] over %b = add(%a, %b)
  output %a
  output %c
)");
}

TEST(RestoreInPlace, LeavesAnInputThatIsReadLater) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%a)
  %c: bf16[T,64] = linear(%a, %w)
  output %b
  output %c
)");
}

// %b does not wait for the earlier reader of %a. Writing %b over %a would make the two nodes run
// one after the other.
TEST(RestoreInPlace, LeavesAnInputThatAnUnrelatedNodeReads) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = silu(%x)
  %c: bf16[T,64] = linear(%a, %w)
  %b: bf16[T,64] = silu(%a)
  output %b
  output %c
)");
}

TEST(RestoreInPlace, OverwritesAnInputWhoseOtherReaderItWaitsFor) {
  expect_rewrite(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = silu(%x)
  %c: bf16[T,64] = linear(%a, %w)
  %b: bf16[T,64] = add(%a, %c)
  output %b
)",
                 R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = silu(%x)
  %c: bf16[T,64] = linear(%a, %w)
  %b: bf16[T,64] over %a = add(%a, %c)
  output %b
)");
}

TEST(RestoreInPlace, LeavesAGraphOutput) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%a)
  output %a
  output %b
)");
}

TEST(RestoreInPlace, LeavesWeightsStatesAndStepInputs) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  state %s: bf16[64,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[64,64] = silu(%w)
  %c: bf16[64,64] = silu(%s)
  output %a
  output %b
  output %c
)");
}

TEST(RestoreInPlace, LeavesAnInputThatTheNodeReadsTwice) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = add(%a, %a)
  output %b
)");
}

TEST(RestoreInPlace, LeavesOpsWhoseRowDoesNotAllowIt) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = linear(%a, %w)
  output %b
)");
}

TEST(RestoreInPlace, OverwritesTheColumnsOfAView) {
  expect_rewrite(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[128,64] = "w"
  %gu: bf16[T,128] = linear(%x, %w)
  %g: bf16[T,64], %u: bf16[T,64] = split(%gu) {sizes=[64,64]}
  %y: bf16[T,64] = silu_mul(%g, %u)
  output %y
)",
                 R"(
  input %x: bf16[T,64]
  weight %w: bf16[128,64] = "w"
  %gu: bf16[T,128] = linear(%x, %w)
  %g: bf16[T,64], %u: bf16[T,64] = split(%gu) {sizes=[64,64]}
  %y: bf16[T,64] over %g = silu_mul(%g, %u)
  output %y
)");
}

// The other columns of the buffer may live on, because only the view's own columns are written.
TEST(RestoreInPlace, LetsOtherColumnsOfTheSameBufferLive) {
  const Program program = run(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[128,64] = "w"
  %ab: bf16[T,128] = linear(%x, %w)
  %a: bf16[T,64], %b: bf16[T,64] = split(%ab) {sizes=[64,64]}
  %a1: bf16[T,64] = silu(%a)
  %y: bf16[T,64] = add(%a1, %b)
  output %b
  output %y
)");
  const auto text = listing::print(program.graph);
  EXPECT_NE(text.find("%a1: bf16[T,64] over %a ="), std::string::npos) << text;
  EXPECT_NE(text.find("%y: bf16[T,64] over %a1 ="), std::string::npos) << text;
}

TEST(RestoreInPlace, LeavesAViewOfABufferThatIsReadAsAWhole) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[128,64] = "w"
  weight %down: bf16[64,128] = "down"
  %ab: bf16[T,128] = linear(%x, %w)
  %a: bf16[T,64], %b: bf16[T,64] = split(%ab) {sizes=[64,64]}
  %a1: bf16[T,64] = silu(%a)
  %y: bf16[T,64] = linear(%ab, %down)
  output %y
  output %a1
)");
}

TEST(RestoreInPlace, LeavesAViewOfAGraphOutput) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[128,64] = "w"
  %ab: bf16[T,128] = linear(%x, %w)
  %a: bf16[T,64], %b: bf16[T,64] = split(%ab) {sizes=[64,64]}
  %a1: bf16[T,64] = silu(%a)
  output %ab
  output %a1
)");
}

TEST(RestoreInPlace, LeavesColumnsThatAnotherViewCovers) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[128,64] = "w"
  %ab: bf16[T,128] = linear(%x, %w)
  %a: bf16[T,64], %b: bf16[T,64] = split(%ab) {sizes=[64,64]}
  %c: bf16[T,96], %d: bf16[T,32] = split(%ab) {sizes=[96,32]}
  %b1: bf16[T,64] = silu(%b)
  output %b1
  output %c
)");
}

// A view that is taken later would show the overwritten columns.
TEST(RestoreInPlace, LeavesAViewWhoseBufferIsViewedAgainLater) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[128,64] = "w"
  %ab: bf16[T,128] = linear(%x, %w)
  %a: bf16[T,64], %b: bf16[T,64] = split(%ab) {sizes=[64,64]}
  %a1: bf16[T,64] = silu(%a)
  %c: bf16[T,64], %d: bf16[T,64] = split(%ab) {sizes=[64,64]}
  output %a1
  output %d
)");
}

TEST(RestoreInPlace, LeavesAViewOfAStepInput) {
  expect_unchanged(restore_in_place, R"(
  input %x: bf16[T,64]
  %a: bf16[T,32], %b: bf16[T,32] = split(%x) {sizes=[32,32]}
  %y: bf16[T,32] = silu(%a)
  output %y
)");
}

TEST(RestoreInPlace, LetsAttentionWriteOverTheQueriesInTheirProjection) {
  const Program program = run(restore_in_place, kPlaces + R"(
  input %x: bf16[T,64]
  weight %w: bf16[128,64] = "w"
  %qkv: bf16[T,128] = linear(%x, %w)
  %q: bf16[T,64], %k: bf16[T,32], %v: bf16[T,32] = split(%qkv) {sizes=[64,32,32]}
  %q1: bf16[T,64], %kc1: bf16[4,1,16,32], %vc1: bf16[4,1,16,32] = rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc)
  %o: bf16[T,64] = attention(%q1, %kc1, %vc1, %pages, %lens, %starts) {scale=0.125}
  output %o
)");
  const auto text = listing::print(program.graph);
  EXPECT_NE(text.find("%q1: bf16[T,64] over %q, %kc1: bf16[4,1,16,32] over %kc, "
                      "%vc1: bf16[4,1,16,32] over %vc = rope_kv_write"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("%o: bf16[T,64] over %q1 = attention"), std::string::npos) << text;
}

// The graph already holds a choice, which orders nodes that the flow of data leaves independent.
// The pass discards it and chooses anew.
TEST(RestoreInPlace, ForgetsEarlierChoices) {
  expect_rewrite(restore_in_place, R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = silu(%x)
  %c: bf16[T,64] = linear(%a, %w)
  %b: bf16[T,64] over %a = silu(%a)
  output %b
  output %c
)",
                 R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = silu(%x)
  %c: bf16[T,64] = linear(%a, %w)
  %b: bf16[T,64] = silu(%a)
  output %b
  output %c
)");
}

TEST(RestoreInPlace, PutsOneOutputOverAnInputThatTwoCouldTake) {
  static const ir::OpSet kOps = [] {
    ir::OpSet ops;
    ops.add(*ops::standard().find("silu"));
    ops.add({.name = "twins",
             .inputs = "x any[...]",
             .outputs = "first = x, second = x",
             .may_reuse = {{"first", "x"}, {"second", "x"}}});
    return ops;
  }();
  Program program(
      listing::parse("graph g {\n  input %x: bf16[T,64]\n  %a: bf16[T,64] = silu(%x)\n"
                     "  %b: bf16[T,64], %c: bf16[T,64] = twins(%a)\n  output %b\n  output %c\n}\n",
                     kOps));
  restore_in_place(program, kOps);
  EXPECT_EQ(program.graph.nodes()[1].in_place, (std::vector<ir::InPlace>{{"first", "x"}}));
}

TEST(RestoreInPlace, GivesTheSameResultTwice) {
  Program program = run(restore_in_place, R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%a)
  output %b
)");
  const auto once = listing::print(program.graph);
  restore_in_place(program, ops::standard());
  EXPECT_EQ(listing::print(program.graph), once);
}

}  // namespace
}  // namespace encore::passes
