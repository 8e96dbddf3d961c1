#include "model/builder.h"

#include <gtest/gtest.h>

#include "ops/ops.h"

namespace encore::model {
namespace {

using ir::Dim;

TEST(Builder, TracesAnAttentionLayerIntoTypedNodes) {
  ir::Graph graph("layer");
  Builder b(graph, ops::standard());
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  const auto positions = graph.add_input("positions", {DType::kI32, {Dim::tokens()}});
  const auto slots = graph.add_input("slots", {DType::kI32, {Dim::tokens()}}, ir::Pad::kMinusOne);
  const auto pages =
      graph.add_value(ir::ValueKind::kPersistent, "page_table", {DType::kI32, {8, 4}});
  const auto lens = graph.add_input("kv_lens", {DType::kI32, {Dim::sequences()}});
  const auto starts =
      graph.add_input("query_starts", {DType::kI32, {Dim::sequences(1)}}, ir::Pad::kRepeatLast);
  const auto wq = graph.add_weight("wq", {DType::kBF16, {64, 64}}, ir::WeightRecipe::tensor("q"));
  const auto wk = graph.add_weight("wk", {DType::kBF16, {32, 64}}, ir::WeightRecipe::tensor("k"));
  const auto freq =
      graph.add_weight("f", {DType::kF32, {8}}, ir::WeightRecipe::of({1, 1, 1, 1, 1, 1, 1, 1}));
  const Builder::Cache cache{
      graph.add_value(ir::ValueKind::kState, "k0", {DType::kBF16, {16, 2, 32, 16}}),
      graph.add_value(ir::ValueKind::kState, "v0", {DType::kBF16, {16, 2, 32, 16}})};
  const auto k = b.linear(x, wk);
  const auto written = b.kv_write(cache, b.rope(k, positions, freq), k, slots);
  const auto o = b.attention(b.linear(x, wq), written, {pages, lens, starts}, {.scale = 0.25});
  graph.add_output(o);
  EXPECT_NO_THROW(ir::verify(graph));
  EXPECT_EQ(graph.value(o).type.to_string(), "bf16[T,64]");
}

TEST(Builder, RefusesAnOpThatTheSetLacks) {
  ir::Graph graph("g");
  Builder b(graph, ops::standard());
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  EXPECT_THROW(b.call("nothing", {x}), Error);
}

}  // namespace
}  // namespace encore::model
