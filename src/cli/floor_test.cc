#include "cli/floor.h"

#include <gtest/gtest.h>

#include "cli/bench_ladder.h"
#include "ops/ops.h"

namespace encore::cli {
namespace {

using ir::Dim;
using ir::Type;

constexpr Rates kRates{.bytes_per_s = 1e9, .flops_per_s = 1e12};

// y = x weight^T for T rows of 64, 128 outputs.
ir::Graph linear_graph() {
  ir::Graph graph("linear");
  const auto x = graph.add_input("x", {DType::kF32, {Dim::tokens(), 64}});
  const auto weight = graph.add_weight("w", {DType::kF32, {128, 64}}, {});
  graph.add_output(graph.add_node(*ops::standard().find("linear"), {x, weight})[0]);
  return graph;
}

TEST(Floor, OfALinearIsTheLongerOfItsBytesAndItsFlops) {
  const ir::Graph graph = linear_graph();
  const auto one = node_floors(graph, {1, 1}, 0, kRates);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].group, "linear [128,64]");
  EXPECT_EQ(one[0].bytes, 4 * (64 + 128 * 64 + 128));
  EXPECT_EQ(one[0].flops, 2 * 128 * 64);
  EXPECT_DOUBLE_EQ(one[0].us, static_cast<double>(one[0].bytes) / 1e9 * 1e6);

  const Rates slow{.bytes_per_s = 1e9, .flops_per_s = 1e6};
  const auto many = node_floors(graph, {100, 1}, 0, slow);
  EXPECT_DOUBLE_EQ(many[0].us, 100.0 * 2 * 128 * 64);
  EXPECT_DOUBLE_EQ(floor_us(many), many[0].us);
}

TEST(Floor, OfAttentionCountsTheKvThatIsThere) {
  ir::Graph graph("attention");
  const auto q = graph.add_input("q", {DType::kBF16, {Dim::tokens(), 8 * 64}});
  const auto k = graph.add_state("k", {DType::kBF16, {16, 2, 32, 64}});
  const auto v = graph.add_state("v", {DType::kBF16, {16, 2, 32, 64}});
  const auto table = graph.add_input("page_table", {DType::kI32, {Dim::sequences(), 4}});
  const auto lens = graph.add_input("kv_lens", {DType::kI32, {Dim::sequences()}});
  const auto starts = graph.add_input("query_starts", {DType::kI32, {Dim::sequences(1)}});
  graph.add_output(graph.add_node(*ops::standard().find("attention"),
                                  {q, k, v, table, lens, starts}, {{"scale", 1.0}})[0]);
  const auto none = node_floors(graph, {3, 3}, 0, kRates);
  const auto some = node_floors(graph, {3, 3}, 100, kRates);
  EXPECT_EQ(some[0].group, "attention");
  EXPECT_EQ(some[0].bytes - none[0].bytes, 100 * 2 * 2 * 64 * 2);  // K and V, 2 heads of 64, bf16
  EXPECT_EQ(some[0].flops, 100 * 4 * 8 * 64);
}

TEST(LadderSummary, NamesTheWorstBucketAndTheLargestChange) {
  const std::vector<BucketTime> times = {
      {1, 110, 100}, {2, 111, 100}, {4, 150, 120}, {8, 151, 140}};
  const LadderSummary summary = summarize(times);
  EXPECT_EQ(summary.worst, 2U);           // 1.25 of its floor
  EXPECT_EQ(summary.largest_change, 3U);  // to 1.079
  EXPECT_NEAR(summary.change, 151.0 / 140 / 1.25 - 1, 1e-12);
  EXPECT_EQ(summarize({{1, 110, 100}}).largest_change, 0U);
}

}  // namespace
}  // namespace encore::cli
