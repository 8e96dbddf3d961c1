#include "runtime/persistent.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/ops.h"

namespace encore::runtime {
namespace {

// One layer from attention to attention; %q and %k are views of what the last linear makes.
constexpr const char* kLayer = R"(graph g {
  input %a: f32[T,8]
  input %h: f32[T,8]
  weight %w: f32[8,8] = "w"
  weight %norm: f32[8] = "norm"
  %o: f32[T,8] = linear(%a, %w)
  %sum: f32[T,8], %n: f32[T,8] = add_rms_norm(%o, %h, %norm) {eps=1e-05}
  %gated: f32[T,8] = silu(%n)
  %y: f32[T,8] = linear(%gated, %w)
  %q: f32[T,4], %k: f32[T,4] = split(%y) {sizes=[4,4]}
  %z: f32[T,4] = silu_mul(%q, %k)
  output %z
  output %sum
}
)";

using Chains = std::vector<Chain>;

class PersistentTest : public ::testing::Test {
 protected:
  // A launch of each node that is no view, with a kernel named after its op.
  PersistentTest() : program_(ir::parse(kLayer, ops::standard())) {
    const std::vector<ir::Node>& nodes = program_.graph.nodes();
    kernels_.reserve(nodes.size());
    for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
      if (nodes[i].op->is_view) continue;
      kernels_.push_back({.op = nodes[i].op->name, .name = nodes[i].op->name});
      Launch launch{.node = i, .op = nodes[i].op, .kernel = &kernels_.back()};
      table_.push_back(std::move(launch));
    }
  }

  passes::Program program_;
  std::vector<Kernel> kernels_;
  std::vector<Launch> table_;
};

bool is_no_norm(const Kernel& kernel, const KernelArgs&) {
  return kernel.name != "add_rms_norm";
}
bool is_any(const Kernel&, const KernelArgs&) {
  return true;
}
bool takes_all(std::span<const Stage>) {
  return true;
}
bool takes_three(std::span<const Stage> chain) {
  return chain.size() <= 3;
}

TEST_F(PersistentTest, StagesKnowWhoMadeWhatTheyReadAndWhatIsReadAfterThem) {
  const auto stages = stages_of(program_, std::span(table_).first(4));
  ASSERT_EQ(stages.size(), 4U);
  const Stage::Origin outside;
  EXPECT_EQ(stages[0].inputs, (std::vector<Stage::Origin>{outside, outside}));
  EXPECT_EQ(stages[1].inputs, (std::vector<Stage::Origin>{{0, 0}, outside, outside}));
  EXPECT_EQ(stages[2].inputs, (std::vector<Stage::Origin>{{1, 1}}));
  EXPECT_EQ(stages[3].inputs, (std::vector<Stage::Origin>{{2, 0}, outside}));
  EXPECT_EQ(stages[0].read_after, std::vector<bool>{false});
  EXPECT_EQ(stages[1].read_after, (std::vector<bool>{true, false}));  // a result of the graph
  EXPECT_EQ(stages[2].read_after, std::vector<bool>{false});
  EXPECT_EQ(stages[3].read_after, std::vector<bool>{true});  // through a view
}

TEST_F(PersistentTest, AViewOfAStagesOutputIsNotTheOutput) {
  const auto stages = stages_of(program_, table_);
  ASSERT_EQ(stages.size(), 5U);
  EXPECT_EQ(stages[4].inputs, (std::vector<Stage::Origin>{{3, -1}, {3, -1}}));
  EXPECT_EQ(stages[3].read_after, std::vector<bool>{false}) << "its views are read inside alone";
}

TEST_F(PersistentTest, RunsAreAsLongAsAKernelTakesThem) {
  const PersistentKernel all{{.name = "all"}, is_any, takes_all, nullptr};
  const PersistentKernel three{{.name = "three"}, is_any, takes_three, nullptr};
  EXPECT_EQ(find_chains(program_, table_, {&all, 1}), (Chains{{0, 5, &all}}));
  EXPECT_EQ(find_chains(program_, table_, {&three, 1}), (Chains{{0, 3, &three}, {3, 5, &three}}));
}

TEST_F(PersistentTest, ALaunchThatIsNoStageEndsARunAndOneAloneIsNone) {
  const PersistentKernel kernel{{.name = "no norm"}, is_no_norm, takes_all, nullptr};
  EXPECT_EQ(find_chains(program_, table_, {&kernel, 1}), (Chains{{2, 5, &kernel}}));
}

TEST_F(PersistentTest, KnowsATableWithoutStages) {
  const PersistentKernel kernel{{.name = "no norm"}, is_no_norm, takes_all, nullptr};
  const std::span<const Launch> table(table_);
  EXPECT_TRUE(has_stages(table, {&kernel, 1}));
  EXPECT_FALSE(has_stages(table.subspan(1, 1), {&kernel, 1}));  // the norm
  EXPECT_FALSE(has_stages(table, {}));
}

TEST_F(PersistentTest, WithoutPersistentKernelsATableStaysAsItIs) {
  EXPECT_TRUE(find_chains(program_, table_, {}).empty());
}

}  // namespace
}  // namespace encore::runtime
