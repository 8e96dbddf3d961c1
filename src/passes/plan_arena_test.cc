#include <map>

#include "passes/order.h"
#include "passes/pipeline.h"
#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

using ir::ValueId;

constexpr ir::Sizes kSizes{4, 2};

Program plan(std::string_view lines, const ir::Sizes& sizes = kSizes) {
  Program program(graph_of(lines));
  program.max_sizes = sizes;
  ir::verify(program.graph);
  split_segments(program, ops::standard());
  plan_arena(program, ops::standard());
  return program;
}

const Placement& placement(const Program& program, std::string_view name) {
  return program.arena.placements[program.graph.find_value(name)->index];
}

// The graph has three products of one size: 4 tokens of 64 elements in bf16 (2 bytes) are 512
// bytes.
TEST(PlanArena, ReusesABufferAfterItsLastUse) {
  const Program program = plan(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = linear(%x, %w)
  %b: bf16[T,64] = linear(%a, %w)
  %c: bf16[T,64] = linear(%b, %w)
  output %c
)");
  EXPECT_EQ(placement(program, "a").offset, 0);
  EXPECT_EQ(placement(program, "b").offset, 512);
  EXPECT_EQ(placement(program, "c").offset, 0);
  EXPECT_EQ(program.arena.bytes, 1024);
  EXPECT_EQ(program.arena.unshared_bytes, 1536);
}

// The graph is that of ReusesABufferAfterItsLastUse. Its buffers lie one behind the other where
// memory is not reused.
TEST(PlanArena, GivesEachValueMemoryOfItsOwnWhereReuseIsOff) {
  CompileOptions options;
  options.max_sizes = kSizes;
  options.reuse_memory = false;
  const Program program = compile(graph_of(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = linear(%x, %w)
  %b: bf16[T,64] = silu(%a)
  %c: bf16[T,64] = linear(%b, %w)
  output %c
)"),
                                  ops::standard(), options);
  EXPECT_EQ(placement(program, "a").offset, 0);
  EXPECT_EQ(placement(program, "b").offset, 512);
  EXPECT_EQ(placement(program, "c").offset, 1024);
  EXPECT_EQ(program.arena.bytes, program.arena.unshared_bytes);
}

TEST(PlanArena, KeepsABufferUntilItsLastReader) {
  const Program program = plan(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = linear(%x, %w)
  %b: bf16[T,64] = linear(%a, %w)
  %c: bf16[T,64] = linear(%b, %w)
  %d: bf16[T,64] = add(%c, %a)
  output %d
)");
  EXPECT_EQ(placement(program, "c").offset, 1024);
  EXPECT_EQ(placement(program, "d").offset, 512);
}

TEST(PlanArena, KeepsGraphOutputsToTheEnd) {
  const Program program = plan(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = linear(%x, %w)
  %b: bf16[T,64] = linear(%a, %w)
  %c: bf16[T,64] = linear(%b, %w)
  output %a
  output %c
)");
  EXPECT_EQ(program.arena.bytes, 1536);
}

// The output is a view, so the buffer that it shows must live to the end.
TEST(PlanArena, KeepsTheBufferOfAnOutputThatIsAView) {
  const Program program = plan(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  weight %half: bf16[64,32] = "half"
  %a: bf16[T,64] = linear(%x, %w)
  %l: bf16[T,32], %r: bf16[T,32] = split(%a) {sizes=[32,32]}
  %b: bf16[T,64] = linear(%r, %half)
  %c: bf16[T,64] = linear(%b, %w)
  output %l
  output %c
)");
  EXPECT_EQ(program.arena.bytes, 1536);
}

// No order holds between %b and the node that reads %a, so they may run at the same time.
TEST(PlanArena, SharesNothingBetweenNodesThatMayRunAtTheSameTime) {
  const Program program = plan(R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = linear(%x, %w)
  %a1: bf16[T,64] = linear(%a, %w)
  %b: bf16[T,64] = linear(%x, %w)
  %b1: bf16[T,64] = linear(%b, %w)
  %y: bf16[T,64] = add(%a1, %b1)
  output %y
)");
  const int64_t a = placement(program, "a").offset;
  const int64_t b = placement(program, "b").offset;
  EXPECT_NE(a, b);
  EXPECT_NE(placement(program, "b1").offset, a);
  EXPECT_EQ(program.arena.bytes, 4 * 512);  // %y takes the memory of %a or of %b
}

TEST(PlanArena, PutsViewsAndInPlaceOutputsIntoTheRootsBuffer) {
  const Program program = plan(R"(
  input %x: bf16[T,64]
  weight %w: bf16[96,64] = "w"
  %ab: bf16[T,96] = linear(%x, %w)
  %a: bf16[T,64], %b: bf16[T,32] = split(%ab) {sizes=[64,32]}
  %c: bf16[T,16], %d: bf16[T,16] = split(%b) {sizes=[16,16]}
  %d1: bf16[T,16] over %d = silu(%d)
  output %d1
)");
  const ValueId root = *program.graph.find_value("ab");
  const std::map<std::string, int64_t> columns = {{"ab", 0}, {"a", 0},  {"b", 64},
                                                  {"c", 64}, {"d", 80}, {"d1", 80}};
  for (const auto& [name, column] : columns) {
    EXPECT_EQ(placement(program, name).root, root) << name;
    EXPECT_EQ(placement(program, name).column, column) << name;
  }
  EXPECT_EQ(program.arena.bytes, 768);
}

TEST(PlanArena, GivesNoMemoryToStatesStepInputsAndWhatLiesOverThem) {
  const Program program = plan(R"(
  input %x: bf16[T,64]
  input %slots: i32[T] pad -1
  state %kc: bf16[4,1,16,32]
  state %vc: bf16[4,1,16,32]
  %k: bf16[T,32], %v: bf16[T,32] = split(%x) {sizes=[32,32]}
  %kc1: bf16[4,1,16,32] over %kc, %vc1: bf16[4,1,16,32] over %vc = kv_write(%kc, %vc, %k, %v, %slots)
)");
  EXPECT_EQ(program.arena.bytes, 0);
  EXPECT_EQ(placement(program, "kc1").root, *program.graph.find_value("kc"));
  EXPECT_EQ(placement(program, "vc1").root, *program.graph.find_value("vc"));
  EXPECT_EQ(placement(program, "v").root, *program.graph.find_value("x"));
  EXPECT_EQ(placement(program, "v").column, 32);
}

TEST(PlanArena, SizesBuffersForTheLargestStep) {
  constexpr const char* kText = R"(
  input %x: bf16[T,64]
  input %rows: i32[B]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[B,64] = gather_rows(%a, %rows)
  output %b
)";
  EXPECT_EQ(plan(kText, {100, 10}).arena.bytes, 12800 + 1280);
  EXPECT_EQ(plan(kText, {100, 100}).arena.bytes, 2 * 12800);
  EXPECT_EQ(plan(kText, {1, 1}).arena.bytes, 2 * 256);  // offsets are multiples of 256
}

// Two small buffers fit where the large one was: large buffers are placed first, and each later
// buffer goes into the lowest gap of the arena that it fits.
TEST(PlanArena, PutsSmallBuffersIntoTheGapThatALargeOneLeaves) {
  const Program program = plan(R"(
  input %x: bf16[T,64]
  weight %up: bf16[256,64] = "up"
  weight %down: bf16[64,256] = "down"
  weight %w: bf16[64,64] = "w"
  %large: bf16[T,256] = linear(%x, %up)
  %a: bf16[T,64] = linear(%large, %down)
  %b: bf16[T,64] = linear(%a, %w)
  %c: bf16[T,64] = linear(%b, %w)
  output %b
  output %c
)");
  EXPECT_EQ(placement(program, "large").offset, 0);
  EXPECT_EQ(placement(program, "a").offset, 2048);
  EXPECT_EQ(placement(program, "b").offset, 0);
  EXPECT_EQ(placement(program, "c").offset, 512);
  EXPECT_EQ(program.arena.bytes, 2560);
  EXPECT_EQ(program.arena.unshared_bytes, 2048 + 3 * 512);
}

TEST(PlanArena, PlansNothingForAGraphWithoutNodes) {
  EXPECT_EQ(plan("  input %x: bf16[T,64]\n  output %x\n").arena.bytes, 0);
}

}  // namespace
}  // namespace encore::passes
