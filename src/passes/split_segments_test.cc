#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

using ir::Symbol;

const std::string kAttentionInputs = R"(
  input %x: bf16[T,64]
  persistent %pages: i32[8,4]
  input %lens: i32[B]
  input %starts: i32[B+1] pad last
  input %rows: i32[B]
  weight %w: bf16[64,64] = "w"
  state %kc: bf16[4,1,16,32]
  state %vc: bf16[4,1,16,32]
)";

std::vector<Segment> segments_of(std::string_view lines) {
  return run(split_segments, lines).segments;
}

TEST(SplitSegments, GivesAttentionASegmentOfItsOwn) {
  const auto segments = segments_of(kAttentionInputs + R"(
  %q: bf16[T,64] = linear(%x, %w)
  %o: bf16[T,64] = attention(%q, %kc, %vc, %pages, %lens, %starts) {scale=0.125}
  %y: bf16[T,64] = silu(%o)
  %z: bf16[T,64] = silu(%y)
  output %z
)");
  EXPECT_EQ(segments, (std::vector<Segment>{{0, 1, true, Symbol::kTokens},
                                            {1, 2, false, Symbol::kTokens},
                                            {2, 4, true, Symbol::kTokens}}));
}

TEST(SplitSegments, GivesAnOpThatTheUserNamesASegmentThatPiecesLeaveOut) {
  Program program(graph_of(kAttentionInputs + R"(
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = add(%a, %x)
  %c: bf16[T,64] = add(%b, %a)
  %y: bf16[T,64] = silu(%c)
  output %y
)"));
  program.split_ops = {"add"};
  split_segments(program, ops::standard());
  EXPECT_EQ(program.segments, (std::vector<Segment>{{0, 1, true, Symbol::kTokens},
                                                    {1, 2, false, Symbol::kTokens},
                                                    {2, 3, false, Symbol::kTokens},
                                                    {3, 4, true, Symbol::kTokens}}));
}

TEST(SplitSegments, SeparatesTwoAttentionsInARow) {
  const auto segments = segments_of(kAttentionInputs + R"(
  %o: bf16[T,64] = attention(%x, %kc, %vc, %pages, %lens, %starts) {scale=0.125}
  %p: bf16[T,64] = attention(%o, %kc, %vc, %pages, %lens, %starts) {scale=0.125}
  output %p
)");
  EXPECT_EQ(segments,
            (std::vector<Segment>{{0, 1, false, Symbol::kTokens}, {1, 2, false, Symbol::kTokens}}));
}

TEST(SplitSegments, CutsWhereRowsChangeToSequencesAndBack) {
  const auto segments = segments_of(kAttentionInputs + R"(
  %a: bf16[T,64] = silu(%x)
  %last: bf16[B,64] = gather_rows(%a, %rows)
  %y: bf16[B,64] = silu(%last)
  %b: bf16[T,64] = silu(%a)
  output %y
  output %b
)");
  EXPECT_EQ(segments, (std::vector<Segment>{{0, 1, true, Symbol::kTokens},
                                            {1, 3, true, Symbol::kSequences},
                                            {3, 4, true, Symbol::kTokens}}));
}

// The outputs of kv_write are caches, so the size on which its launch depends is that of its
// inputs, which are tokens.
TEST(SplitSegments, CountsTheRowsThatACacheWriteReads) {
  const auto segments = segments_of(R"(
  input %k: bf16[T,32]
  input %slots: i32[T] pad -1
  input %b: bf16[B,64]
  state %kc: bf16[4,1,16,32]
  state %vc: bf16[4,1,16,32]
  %y: bf16[B,64] = silu(%b)
  %kc1: bf16[4,1,16,32], %vc1: bf16[4,1,16,32] = kv_write(%kc, %vc, %k, %k, %slots)
  output %y
)");
  EXPECT_EQ(segments, (std::vector<Segment>{{0, 1, true, Symbol::kSequences},
                                            {1, 2, true, Symbol::kTokens}}));
}

TEST(SplitSegments, LeavesViewsWithWhatTheyAreAViewOf) {
  const auto segments = segments_of(kAttentionInputs + R"(
  %o: bf16[T,64] = attention(%x, %kc, %vc, %pages, %lens, %starts) {scale=0.125}
  %a: bf16[T,32], %b: bf16[T,32] = split(%o) {sizes=[32,32]}
  %y: bf16[T,32] = add(%a, %b)
  output %y
)");
  EXPECT_EQ(segments,
            (std::vector<Segment>{{0, 2, false, Symbol::kTokens}, {2, 3, true, Symbol::kTokens}}));
}

TEST(SplitSegments, TakesAViewOfAnInputAlongWithTheFirstLaunch) {
  const auto segments = segments_of(R"(
  input %x: bf16[B,64]
  %a: bf16[B,32], %b: bf16[B,32] = split(%x) {sizes=[32,32]}
  %y: bf16[B,32] = add(%a, %b)
  output %y
)");
  EXPECT_EQ(segments, (std::vector<Segment>{{0, 2, true, Symbol::kSequences}}));
}

TEST(SplitSegments, LetsANodeWithoutRowsGoWithEither) {
  const auto segments = segments_of(R"(
  input %x: bf16[B,64]
  weight %w: bf16[64,64] = "w"
  %w1: bf16[64,64] = silu(%w)
  %y: bf16[B,64] = linear(%x, %w1)
  %w2: bf16[64,64] = silu(%w1)
  %z: bf16[B,64] = linear(%y, %w2)
  output %z
)");
  EXPECT_EQ(segments, (std::vector<Segment>{{0, 4, true, Symbol::kSequences}}));
}

TEST(SplitSegments, RemembersItsRowsAcrossANodeWithoutRows) {
  const auto segments = segments_of(R"(
  input %x: bf16[B,64]
  input %t: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %y: bf16[B,64] = silu(%x)
  %w1: bf16[64,64] = silu(%w)
  %z: bf16[T,64] = linear(%t, %w1)
  output %y
  output %z
)");
  EXPECT_EQ(segments, (std::vector<Segment>{{0, 2, true, Symbol::kSequences},
                                            {2, 3, true, Symbol::kTokens}}));
}

// `gather_rows` may read from any number of rows, so its launch does not depend on the number of
// tokens.
TEST(SplitSegments, GivesAnyOpThatCountsTokensAndSequencesASegmentOfItsOwn) {
  static const ir::OpSet kOps = [] {
    ir::OpSet ops = ops::standard();
    ops.add({.name = "spread", .inputs = "x float[T,N], rows i32[B]", .outputs = "y = x"});
    return ops;
  }();
  Program program(
      listing::parse("graph g {\n  input %x: bf16[T,64]\n  input %rows: i32[B]\n"
                     "  %a: bf16[T,64] = silu(%x)\n  %b: bf16[T,64] = spread(%a, %rows)\n"
                     "  %c: bf16[B,64] = gather_rows(%b, %rows)\n  output %c\n}\n",
                     kOps));
  split_segments(program, kOps);
  EXPECT_EQ(program.segments, (std::vector<Segment>{{0, 1, true, Symbol::kTokens},
                                                    {1, 2, false, Symbol::kTokens},
                                                    {2, 3, true, Symbol::kSequences}}));
}

TEST(SplitSegments, FillsInTheDependencies) {
  const Program program = run(split_segments, R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%a)
  output %b
)");
  EXPECT_EQ(program.after, (std::vector<std::vector<int>>{{}, {0}}));
}

TEST(SplitSegments, MakesNoSegmentOfNothing) {
  EXPECT_TRUE(segments_of("  input %x: bf16[T,64]\n  output %x\n").empty());
}

}  // namespace
}  // namespace encore::passes
