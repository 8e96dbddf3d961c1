#include "passes/order.h"
#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

using Edges = std::vector<std::vector<int>>;

Edges edges_of(std::string_view lines) {
  const ir::Graph graph = graph_of(lines);
  ir::verify(graph);
  return dependencies(graph);
}

TEST(Dependencies, FollowTheData) {
  EXPECT_EQ(edges_of(R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%x)
  %c: bf16[T,64] = add(%a, %b)
  output %c
)"),
            (Edges{{}, {}, {0, 1}}));
}

TEST(Dependencies, LeaveOutWhatAnotherEdgeImplies) {
  EXPECT_EQ(edges_of(R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%a)
  %c: bf16[T,64] = add(%a, %b)
  output %c
)"),
            (Edges{{}, {0}, {1}}));
}

// A view is never launched, so no node waits for one: a node that reads a view waits for the launch
// that wrote the memory.
TEST(Dependencies, LookThroughViews) {
  EXPECT_EQ(edges_of(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %ab: bf16[T,64] = linear(%x, %w)
  %a: bf16[T,32], %b: bf16[T,32] = split(%ab) {sizes=[32,32]}
  %c: bf16[T,16], %d: bf16[T,16] = split(%b) {sizes=[16,16]}
  %y: bf16[T,16] = add(%c, %d)
  output %y
)"),
            (Edges{{}, {0}, {0}, {0}}));
}

TEST(Dependencies, MakeAMutationWaitForReadersOfTheOldState) {
  EXPECT_EQ(edges_of(R"(
  input %q: bf16[T,64]
  input %k: bf16[T,32]
  input %slots: i32[T] pad -1
  persistent %pages: i32[8,4]
  input %lens: i32[B]
  input %starts: i32[B+1] pad last
  state %kc: bf16[4,1,16,32]
  state %vc: bf16[4,1,16,32]
  %old: bf16[T,64] = attention(%q, %kc, %vc, %pages, %lens, %starts) {scale=0.125}
  %kc1: bf16[4,1,16,32], %vc1: bf16[4,1,16,32] = kv_write(%kc, %vc, %k, %k, %slots)
  %new: bf16[T,64] = attention(%q, %kc1, %vc1, %pages, %lens, %starts) {scale=0.125}
  %kc2: bf16[4,1,16,32], %vc2: bf16[4,1,16,32] = kv_write(%kc1, %vc1, %k, %k, %slots)
  output %old
  output %new
)"),
            (Edges{{}, {0}, {1}, {2}}));
}

TEST(Dependencies, LeaveWritesToDifferentStatesApart) {
  EXPECT_EQ(edges_of(R"(
  input %k: bf16[T,32]
  input %slots: i32[T] pad -1
  state %kc: bf16[4,1,16,32]
  state %vc: bf16[4,1,16,32]
  state %kd: bf16[4,1,16,32]
  state %vd: bf16[4,1,16,32]
  %kc1: bf16[4,1,16,32], %vc1: bf16[4,1,16,32] = kv_write(%kc, %vc, %k, %k, %slots)
  %kd1: bf16[4,1,16,32], %vd1: bf16[4,1,16,32] = kv_write(%kd, %vd, %k, %k, %slots)
)"),
            (Edges{{}, {}}));
}

TEST(Dependencies, MakeAnInPlaceWriteWaitForOtherReaders) {
  EXPECT_EQ(edges_of(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = silu(%x)
  %c: bf16[T,64] = linear(%a, %w)
  %b: bf16[T,64] over %a = silu(%a)
  output %b
  output %c
)"),
            (Edges{{}, {0}, {1}}));
}

// %b1 is written over %b, which is a part of the columns of %ab. So it must wait for the readers of
// all of %ab. It need not wait for readers of %a, the other columns.
TEST(Dependencies, MakeAnInPlaceWriteOverAViewWaitForReadersOfTheWhole) {
  EXPECT_EQ(edges_of(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %ab: bf16[T,64] = linear(%x, %w)
  %a: bf16[T,32], %b: bf16[T,32] = split(%ab) {sizes=[32,32]}
  %whole: bf16[T,64] = linear(%ab, %w)
  %left: bf16[T,32] = silu(%a)
  %b1: bf16[T,32] over %b = silu(%b)
  output %whole
  output %left
  output %b1
)"),
            (Edges{{}, {0}, {0}, {0}, {2}}));
}

// The write over the left columns waits for the reader of the whole buffer. The later write over
// the right columns must still wait for that reader, too.
TEST(Dependencies, RememberReadersOfTheWholeAfterAPartIsOverwritten) {
  EXPECT_EQ(edges_of(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %ab: bf16[T,64] = linear(%x, %w)
  %a: bf16[T,32], %b: bf16[T,32] = split(%ab) {sizes=[32,32]}
  %whole: bf16[T,64] = linear(%ab, %w)
  %a1: bf16[T,32] over %a = silu(%a)
  %b1: bf16[T,32] over %b = silu(%b)
  output %whole
  output %a1
  output %b1
)"),
            (Edges{{}, {0}, {0}, {2}, {2}}));
}

TEST(Dependencies, ChainInPlaceWritesOfOneBuffer) {
  EXPECT_EQ(edges_of(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] over %a = silu(%a)
  %r: bf16[T,64] = linear(%b, %w)
  %c: bf16[T,64] over %b = silu(%b)
  output %c
  output %r
)"),
            (Edges{{}, {0}, {1}, {2}}));
}

TEST(HappensBefore, IsTheTransitiveClosure) {
  // The edges are those of a chain of nodes that is longer than the 64 bits of a word of
  // HappensBefore's bitset, and of one node beside the chain.
  Edges after(200);
  for (int i = 1; i < 199; ++i)
    after[i] = {i - 1};
  const HappensBefore order(after);
  EXPECT_TRUE(order.before(0, 198));
  EXPECT_TRUE(order.before(63, 64));
  EXPECT_TRUE(order.before(64, 128));
  EXPECT_FALSE(order.before(128, 64));
  EXPECT_FALSE(order.before(64, 64));
  EXPECT_FALSE(order.before(0, 199));
}

}  // namespace
}  // namespace encore::passes
