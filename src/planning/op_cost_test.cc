#include "planning/op_cost.h"

#include <gtest/gtest.h>

#include "model/builder.h"
#include "ops/ops.h"

namespace encore::planning {
namespace {

using ir::Dim;
using ir::Type;

OpCost cost_of(const ir::Graph& graph, ir::ValueId made) {
  return op_cost(graph, graph.node(graph.value(made).producer), {3, 1});
}

TEST(OpCost, CountsTheBytesAndFlopsOfALinear) {
  ir::Graph graph("g");
  model::Builder b(graph, ops::standard());
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  const auto w = graph.add_weight("w", {DType::kBF16, {32, 64}}, ir::WeightRecipe::tensor("w"));
  const OpCost cost = cost_of(graph, b.linear(x, w));
  EXPECT_EQ(cost.bytes, 2 * (3 * 64 + 32 * 64 + 3 * 32));
  EXPECT_EQ(cost.flops, 2 * 3 * 32 * 64);
}

// To choose tokens, two ranks exchange candidates instead of all logits.
TEST(OpCost, CountsCandidatesInThePlaceOfTheLogitsOfOtherRanks) {
  constexpr int64_t kOwn = 64000;
  ir::Graph graph("g");
  model::Builder b(graph, ops::standard());
  const auto x = graph.add_input("x", {DType::kF32, {Dim::tokens(), kOwn}});
  const auto sampling = graph.add_input("sampling", {DType::kI32, {Dim::sequences(), 16}});
  const auto kv_lens = graph.add_input("kv_lens", {DType::kI32, {Dim::tokens()}});
  const int64_t gathered = cost_of(graph, b.all_gather(x, "lm_head", 2)).bytes;
  const auto logits =
      b.call("gather_logits", {{"x", x}, {"sampling", sampling}, {"kv_lens", kv_lens}},
             {{"of", std::string("lm_head")}, {"ranks", int64_t{2}}})["logits"];
  const auto largest = b.call(
      "own_largest",
      {{"logits", logits}, {"adjusted", logits}, {"sampling", sampling}, {"kv_lens", kv_lens}},
      {{"first_column", kOwn}, {"columns", kOwn}})["largest"];
  const auto all = b.all_gather(largest, "lm_head.largest", 2);
  const int64_t rows = 3;
  EXPECT_EQ(gathered, rows * 3 * kOwn * 4);
  EXPECT_EQ(cost_of(graph, logits).bytes, rows * (2 * kOwn + 1) * 4);
  EXPECT_EQ(cost_of(graph, largest).bytes, rows * (kOwn + 1 + 2) * 4 + 16 * 4);
  EXPECT_EQ(cost_of(graph, all).bytes, rows * (2 + 4) * 4);
}

TEST(OpCost, LeavesOutSlotsOfAdapters) {
  ir::Graph graph("g");
  model::Builder b(graph, ops::standard());
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  const auto w = graph.add_weight("w", {DType::kBF16, {32, 64}}, ir::WeightRecipe::tensor("w"));
  const auto lora_a = graph.add_weight("a", {DType::kBF16, {5, 8, 64}}, {});
  const auto lora_b = graph.add_weight("b", {DType::kBF16, {5, 32, 8}}, {});
  const auto slots = graph.add_input("slots", {DType::kI32, {Dim::tokens()}}, ir::Pad::kMinusOne);
  const auto adapted = b.linear(x, w, std::nullopt, model::Builder::Lora{lora_a, lora_b, slots});
  EXPECT_EQ(cost_of(graph, adapted).bytes, cost_of(graph, b.linear(x, w)).bytes);
}

TEST(OpCost, CountsAWeightInFp8AsBytesAndItsScale) {
  ir::Graph graph("g");
  model::Builder b(graph, ops::standard());
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  const auto w = graph.add_weight("w", {DType::kFP8, {32, 64}}, ir::WeightRecipe::tensor("w"));
  const auto s = graph.add_weight("s", {DType::kF32, {32}}, ir::WeightRecipe::tensor("s"));
  const auto y = b.call("linear", {{"x", x}, {"weight", w}, {"scale", &s}})["y"];
  const OpCost cost = cost_of(graph, y);
  EXPECT_EQ(cost.bytes, 2 * 3 * 64 + 32 * 64 + 4 * 32 + 2 * 3 * 32);
  EXPECT_EQ(cost.flops, 2 * 3 * 32 * 64);
}

// Each row chooses 8 of 64 experts. One row reads 8 of them. A row leaves out an expert with the
// probability 7/8, so 8 rows are expected to read 64 * (1 - 0.875^8) = 42.0 of them. 4096 rows read
// all.
TEST(OpCost, CountsTheExpertsThatRowsAreExpectedToChoose) {
  ir::Graph graph("g");
  model::Builder b(graph, ops::standard());
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  const auto live = graph.add_input("live", {DType::kI32, {Dim::tokens()}}, ir::Pad::kMinusOne);
  const auto weight = [&](const char* name, std::vector<Dim> dims) {
    return graph.add_weight(name, {DType::kBF16, std::move(dims)}, ir::WeightRecipe::tensor(name));
  };
  const auto logits = b.linear_as(DType::kF32, x, weight("router", {64, 64}));
  const auto y = b.expert_mlp(x, b.route(logits, live, {.top_k = 8}),
                              weight("gate_up", {64, 96, 64}), weight("down", {64, 64, 48}));
  const ir::Node& node = graph.node(graph.value(y).producer);
  constexpr int64_t kExpertBytes = 2 * (96 * 64 + 64 * 48);
  const auto weight_bytes = [&](int64_t rows) {
    return op_cost(graph, node, {rows, 1}).bytes - rows * (2 * 64 + 8 * (4 + 4) + 2 * 64);
  };
  EXPECT_EQ(weight_bytes(1), 8 * kExpertBytes);
  EXPECT_NEAR(static_cast<double>(weight_bytes(8)), 42.0090 * kExpertBytes, 1e-3 * kExpertBytes);
  EXPECT_EQ(weight_bytes(4096), 64 * kExpertBytes);
  EXPECT_EQ(op_cost(graph, node, {3, 1}).flops, 2 * 3 * 8 * 3 * 64 * 48);
  EXPECT_DOUBLE_EQ(weight_share(graph, node, {1, 1}), 8.0 / 64);

  // Codes have scales. Only the scales of chosen experts are read.
  const auto codes = [&](const char* name, std::vector<Dim> dims) {
    const Dim experts = dims[0];
    const Dim rows = dims[1];
    const auto codes = graph.add_weight(name, {DType::kFP8, std::move(dims)}, {});
    const auto scale =
        graph.add_weight(std::string(name) + "_scale", {DType::kF32, {experts, rows}}, {});
    return model::Builder::Matrix(codes, scale, std::nullopt);
  };
  const auto z =
      b.expert_mlp(x, b.route(logits, live, {.top_k = 8}), codes("gate_up_codes", {64, 96, 64}),
                   codes("down_codes", {64, 64, 48}));
  const OpCost of_codes = op_cost(graph, graph.node(graph.value(z).producer), {1, 1});
  EXPECT_EQ(of_codes.bytes - (2 * 64 + 8 * (4 + 4) + 2 * 64),
            8 * (96 * 64 + 64 * 48 + 4 * (96 + 64)));
}

TEST(OpCost, CountsKvAsItsCacheKeepsIt) {
  ir::Graph graph("g");
  model::Builder b(graph, ops::standard());
  const auto k = graph.add_input("k", {DType::kBF16, {Dim::tokens(), 32}});
  const auto slots = graph.add_input("slots", {DType::kI32, {Dim::tokens()}}, ir::Pad::kMinusOne);
  const auto bytes = [&](DType dtype) {
    const Type type{dtype, {16, 2, 32, 16}};
    const model::Builder::Cache cache{graph.add_value(ir::ValueKind::kState, "k_cache", type),
                                      graph.add_value(ir::ValueKind::kState, "v_cache", type)};
    return cost_of(graph, b.kv_write(cache, k, k, slots).k).bytes;
  };
  constexpr int64_t kElements = 2 * 3 * 32;
  EXPECT_EQ(bytes(DType::kBF16), kElements * (2 + 2) + 3 * 4);
  EXPECT_EQ(bytes(DType::kFP8), kElements * (2 + 1) + 3 * 4);
}

TEST(OpCost, OfAnOpThatIsNotListedIsItsOperandsOnce) {
  ir::Graph graph("g");
  model::Builder b(graph, ops::standard());
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  const OpCost cost = cost_of(graph, b.add(x, b.silu(x)));
  EXPECT_EQ(cost.bytes, 2 * 3 * 3 * 64);
  EXPECT_EQ(cost.flops, 0);
}

}  // namespace
}  // namespace encore::planning
