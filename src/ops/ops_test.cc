#include "ops/ops.h"

#include <gtest/gtest.h>

#include "ops/builder.h"

namespace encore::ops {
namespace {

using ir::Dim;
using ir::Type;

TEST(Builder, TracesAnAttentionLayerIntoTypedNodes) {
  ir::Graph graph("layer");
  Builder b(graph, standard());
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  const auto positions = graph.add_input("positions", {DType::kI32, {Dim::tokens()}});
  const auto slots = graph.add_input("slots", {DType::kI32, {Dim::tokens()}}, ir::Pad::kMinusOne);
  const auto pages = graph.add_persistent("page_table", {DType::kI32, {8, 4}});
  const auto lens = graph.add_input("kv_lens", {DType::kI32, {Dim::sequences()}});
  const auto starts =
      graph.add_input("query_starts", {DType::kI32, {Dim::sequences(1)}}, ir::Pad::kRepeatLast);
  const auto wq = graph.add_weight("wq", {DType::kBF16, {64, 64}}, ir::WeightRecipe::tensor("q"));
  const auto wk = graph.add_weight("wk", {DType::kBF16, {32, 64}}, ir::WeightRecipe::tensor("k"));
  const auto freq =
      graph.add_weight("f", {DType::kF32, {8}}, ir::WeightRecipe::of({1, 1, 1, 1, 1, 1, 1, 1}));
  const Builder::Cache cache{graph.add_state("k0", {DType::kBF16, {16, 2, 32, 16}}),
                             graph.add_state("v0", {DType::kBF16, {16, 2, 32, 16}})};
  const auto k = b.linear(x, wk);
  const auto written = b.kv_write(cache, b.rope(k, positions, freq), k, slots);
  const auto o = b.attention(b.linear(x, wq), written, {pages, lens, starts}, 0.25);
  graph.add_output(o);
  EXPECT_NO_THROW(ir::verify(graph));
  EXPECT_EQ(graph.value(o).type.to_string(), "bf16[T,64]");
}

TEST(Ops, RefuseInputsThatDoNotFitAndSayWhatTheyNeed) {
  ir::Graph graph("g");
  Builder b(graph, standard());
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  const auto w = graph.add_weight("w", {DType::kBF16, {32, 48}}, ir::WeightRecipe::tensor("w"));
  try {
    b.linear(x, w);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "op 'linear': weight is bf16[32,48], needs float[O,I] with float = bf16, I = 64, O = 32");
  }
  EXPECT_THROW(b.call("nothing", {x}), Error);
}

TEST(Ops, WriteKvInTheCachesDtype) {
  ir::Graph graph("g");
  Builder b(graph, standard());
  const auto k = graph.add_input("k", {DType::kBF16, {Dim::tokens(), 32}});
  const auto slots = graph.add_input("slots", {DType::kI32, {Dim::tokens()}}, ir::Pad::kMinusOne);
  const auto caches = [&](DType dtype) {
    const Type type{dtype, {16, 2, 32, 16}};
    return Builder::Cache{graph.add_state("k_" + std::string(name(dtype)), type),
                          graph.add_state("v_" + std::string(name(dtype)), type)};
  };
  const auto written = [&](DType dtype) {
    return graph.value(b.kv_write(caches(dtype), k, k, slots).k).type.dtype;
  };
  EXPECT_EQ(written(DType::kBF16), DType::kBF16);
  EXPECT_EQ(written(DType::kFP8), DType::kFP8);
  EXPECT_THROW(written(DType::kI32), Error);
  EXPECT_THROW(b.add(graph.add_input("a", {DType::kFP8, {Dim::tokens(), 32}}), k), Error);
}

}  // namespace
}  // namespace encore::ops
