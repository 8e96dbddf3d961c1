#include "planning/floor.h"

#include <gtest/gtest.h>

#include "ops/ops.h"

namespace encore::planning {
namespace {

using ir::Dim;
using ir::Type;

constexpr Rates kRates{.bytes_per_s = 1e9, .flops_per_s = 1e12};

// Returns a graph of one linear, y = x weight^T, with T rows of 64 inputs and 128 outputs.
ir::Graph linear_graph() {
  ir::Graph graph("linear");
  const auto x = graph.add_input("x", {DType::kF32, {Dim::tokens(), 64}});
  const auto weight = graph.add_weight("w", {DType::kF32, {128, 64}}, {});
  graph.add_output(graph.add_node(*ops::standard().find("linear"), {x, weight}).outputs["y"]);
  return graph;
}

TEST(Floor, OfALinearIsTheLongerOfItsBytesAndItsFlops) {
  const ir::Graph graph = linear_graph();
  const auto one = node_floors(graph, {1, 1}, {}, kRates);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].group, "linear [128,64]");
  EXPECT_EQ(one[0].bytes, 4 * (64 + 128 * 64 + 128));
  EXPECT_EQ(one[0].weight_bytes, 4 * 128 * 64);
  EXPECT_EQ(one[0].flops, 2 * 128 * 64);
  EXPECT_DOUBLE_EQ(one[0].us, static_cast<double>(one[0].bytes) / 1e9 * 1e6);

  const Rates slow{.bytes_per_s = 1e9, .flops_per_s = 1e6};
  const auto many = node_floors(graph, {100, 1}, {}, slow);
  EXPECT_DOUBLE_EQ(many[0].us, 100.0 * 2 * 128 * 64);
  EXPECT_DOUBLE_EQ(floor_us(many), many[0].us);
}

TEST(StepFloor, IsReadingOrComputingOpByOp) {
  const ir::Graph graph = linear_graph();
  const StepFloor read = step_floor(node_floors(graph, {1, 1}, {}, kRates), kRates);
  EXPECT_DOUBLE_EQ(read.weights_us, 4 * 128 * 64 / 1e3);
  EXPECT_DOUBLE_EQ(read.weights_us + read.activations_us, read.us);
  EXPECT_EQ(read.compute_us, 0);
  EXPECT_DOUBLE_EQ(read.all_flops_us, 2 * 128 * 64 / 1e6);
  const Rates slow{.bytes_per_s = 1e9, .flops_per_s = 1e6};
  const StepFloor computed = step_floor(node_floors(graph, {100, 1}, {}, slow), slow);
  EXPECT_DOUBLE_EQ(computed.compute_us, computed.us);
  EXPECT_EQ(computed.weights_us, 0);
}

// Returns a graph with one node of attention for each element of `nodes`, with 8 heads of 64 over 2
// heads of K and V, in bf16.
ir::Graph attention_graph(const std::vector<ir::Attrs>& nodes) {
  ir::Graph graph("attention");
  const auto q = graph.add_input("q", {DType::kBF16, {Dim::tokens(), 8 * 64}});
  const auto k = graph.add_value(ir::ValueKind::kState, "k", {DType::kBF16, {16, 2, 32, 64}});
  const auto v = graph.add_value(ir::ValueKind::kState, "v", {DType::kBF16, {16, 2, 32, 64}});
  const auto table =
      graph.add_value(ir::ValueKind::kPersistent, "page_table", {DType::kI32, {8, 4}});
  const auto lens = graph.add_input("kv_lens", {DType::kI32, {Dim::sequences()}});
  const auto starts = graph.add_input("query_starts", {DType::kI32, {Dim::sequences(1)}});
  for (const ir::Attrs& attrs : nodes) {
    const auto& op = *ops::standard().find("attention");
    graph.add_output(graph.add_node(op, {q, k, v, table, lens, starts}, attrs).outputs["o"]);
  }
  return graph;
}

// The step has 8 sequences of 8,192 tokens. In the layer with a window, each attends to its last
// 1,024 tokens.
TEST(Floor, OfAttentionWithAWindowIsThatOfTheWindow) {
  const ir::Graph graph =
      attention_graph({{{"scale", 1.0}}, {{"scale", 1.0}, {"window", int64_t{1024}}}});
  const auto floors = node_floors(graph, {8, 8}, KvWork::decode(int64_t{8} * 8192), kRates);
  constexpr double kWindowBytes = 8.0 * 1024 * 2 * 2 * 64 * 2;
  EXPECT_EQ(static_cast<double>(floors[0].kv_bytes), 8 * kWindowBytes);
  EXPECT_GE(static_cast<double>(floors[1].kv_bytes), kWindowBytes);
  EXPECT_LE(static_cast<double>(floors[1].kv_bytes), 1.1 * kWindowBytes);
}

TEST(Floor, OfAttentionCountsTheKvThatIsThere) {
  const ir::Graph graph =
      attention_graph({{{"scale", 1.0}}, {{"scale", 1.0}, {"window", int64_t{20}}}});
  const auto none = node_floors(graph, {3, 3}, {}, kRates);
  const auto some = node_floors(graph, {3, 3}, KvWork::decode(100), kRates);
  EXPECT_EQ(some[0].group, "attention");
  EXPECT_EQ(some[0].bytes - none[0].bytes, 100 * 2 * 2 * 64 * 2);  // K and V, 2 heads of 64, bf16
  EXPECT_EQ(some[0].kv_bytes, some[0].bytes - none[0].bytes);
  EXPECT_EQ(some[0].flops, 100 * 4 * 8 * 64);
  // A prompt reads its K and V once. Each of its 10 new tokens attends to the 90 earlier tokens, to
  // the new tokens before it and to itself: 10 * 90 + 55 pairs.
  const auto prompt = node_floors(graph, {10, 1}, KvWork::of(90, 10), kRates);
  EXPECT_EQ(prompt[0].kv_bytes, some[0].kv_bytes);
  EXPECT_EQ(prompt[0].flops, (10 * 90 + 55) * 4 * 8 * 64);
  // With the window of 20 tokens, 3 sequences that decode read 20 tokens each, which are 60. The 10
  // new tokens of one sequence read 19 earlier tokens and themselves, which are 29.
  EXPECT_EQ(some[1].kv_bytes, 60 * 2 * 2 * 64 * 2);
  EXPECT_EQ(prompt[1].kv_bytes, 29 * 2 * 2 * 64 * 2);
  EXPECT_EQ(prompt[1].flops, 10 * 20 * 4 * 8 * 64);
}

TEST(Floor, OfTheCpuCountsWhatItComputesAtBest) {
  const auto device = create_cpu_device({.num_threads = 1, .shuffle_seed = {}});
  const Rates measured = rates(*device, 1e9, 1 << 20);
  EXPECT_GT(measured.flops_per_s, 1e6);
  EXPECT_GT(measured.bytes_per_s, 1e6);
  EXPECT_NE(measured.bytes_per_s, 1e9);
  EXPECT_NE(rates_text(measured).find("FLOP/s, whichever takes longer"), std::string::npos);
}

}  // namespace
}  // namespace encore::planning
