#include "ops/ops.h"

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "ir/graph.h"

namespace encore::ops {
namespace {

using ir::Dim;

const ir::Op& op(std::string_view name) {
  return *standard().find(name);
}

TEST(Ops, RefuseInputsThatDoNotFitAndSayWhatTheyNeed) {
  ir::Graph graph("g");
  const auto x = graph.add_input("x", {DType::kBF16, {Dim::tokens(), 64}});
  const auto w = graph.add_weight("w", {DType::kBF16, {32, 48}}, ir::WeightRecipe::tensor("w"));
  EXPECT_EQ(
      message_of(ErrorKind::kCompile,
                 [&] {
                   graph.add_node(op("linear"), {x, w});
                 }),
      "op 'linear': weight is bf16[32,48], needs stored[O,I] with float = bf16, I = 64, O = 32");
  EXPECT_EQ(standard().find("nothing"), nullptr);
}

TEST(Ops, TakeAScaleWithAWeightInFp8) {
  const auto error = [](DType dtype, std::optional<ir::Type> scale, const ir::Attrs& attrs = {}) {
    ir::Types in{{"x", {DType::kBF16, {Dim::tokens(), 300}}}, {"weight", {dtype, {200, 300}}}};
    if (scale) in.add("scale", *scale, true);
    return message_of(ErrorKind::kCompile, [&] { infer(op("linear"), in, attrs); });
  };
  const ir::Type by_row{DType::kF32, {200}};
  const ir::Type by_block{DType::kF32, {2, 3}};
  EXPECT_EQ(error(DType::kFP8, by_row), "");
  EXPECT_EQ(error(DType::kFP8, by_block, {{"fp8_rows", int64_t{33}}}), "");
  EXPECT_EQ(error(DType::kFP8, ir::Type{DType::kF32, {2, 2}}),
            "op 'linear': scale is f32[2,2], needs f32[200] or f32[2,3]");
  const std::string both = "op 'linear': needs a scale where the weight is fp8, and only there";
  EXPECT_EQ(error(DType::kFP8, std::nullopt), both);
  EXPECT_EQ(error(DType::kBF16, by_row), both);
  EXPECT_EQ(error(DType::kBF16, std::nullopt, {{"fp8_rows", int64_t{1}}}),
            "op 'linear': needs a weight in fp8 for activations in fp8");
  EXPECT_EQ(error(DType::kFP8, by_row, {{"fp8_rows", int64_t{0}}}),
            "op 'linear': needs an fp8_rows above 0");
}

TEST(Ops, TakeAdaptersWhoseMatricesFitTheBlocks) {
  const auto error = [](std::optional<ir::Type> a, std::optional<ir::Type> b, bool has_slots,
                        const ir::Attrs& attrs = {}) {
    ir::Types in{{"x", {DType::kBF16, {Dim::tokens(), 64}}}, {"weight", {DType::kBF16, {48, 64}}}};
    if (a) in.add("lora_a", *a, true);
    if (b) in.add("lora_b", *b, true);
    if (has_slots) in.add("adapters", {DType::kI32, {Dim::tokens()}}, true);
    return message_of(ErrorKind::kCompile, [&] { infer(op("linear"), in, attrs); });
  };
  const ir::Type a{DType::kBF16, {2, 16, 64}};
  const ir::Type b{DType::kBF16, {2, 48, 8}};
  const ir::Attrs blocks{{"lora_blocks", std::vector<int64_t>{32, 16}}};
  EXPECT_EQ(error(a, b, true, blocks), "");
  EXPECT_EQ(error(a, b, false),
            "op 'linear': needs lora_a, lora_b and adapters, all or none of them");
  EXPECT_EQ(error(a, std::nullopt, true),
            "op 'linear': needs lora_a, lora_b and adapters, all or none of them");
  EXPECT_EQ(error(a, b, true), "op 'linear': needs K rows of A for each of the lora_blocks");
  EXPECT_EQ(error(a, b, true, {{"lora_blocks", std::vector<int64_t>{32, 8}}}),
            "op 'linear': needs lora_blocks that sum to the outputs");
  EXPECT_EQ(error(std::nullopt, std::nullopt, false, blocks),
            "op 'linear': needs a lora_a for 'lora_blocks'");
}

TEST(Ops, RouteToAsManyExpertsAsThereAre) {
  const auto route = [](int64_t top_k, int64_t renormalize) {
    const ir::Types in{{"logits", {DType::kF32, {Dim::tokens(), 8}}},
                       {"live", {DType::kI32, {Dim::tokens()}}}};
    return infer(op("route"), in,
                 {{"top_k", top_k}, {"renormalize", renormalize}, {"least", int64_t{0}}});
  };
  const ir::Types routed = route(8, 1);
  EXPECT_EQ(routed["experts"].to_string(), "i32[T,8]");
  EXPECT_EQ(routed["weights"].to_string(), "f32[T,8]");
  for (const int64_t top_k : {0, 9}) {
    EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { (void)route(top_k, 1); }),
              "op 'route': needs a top_k from 1 to the number of experts");
  }
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { (void)route(2, 2); }),
            "op 'route': needs 0 or 1 as 'renormalize'");
}

TEST(Ops, RouteToGroupsThatHaveEnoughExperts) {
  const auto error = [](const ir::Attrs& more) {
    const ir::Types in{{"logits", {DType::kF32, {Dim::tokens(), 12}}},
                       {"live", {DType::kI32, {Dim::tokens()}}}};
    ir::Attrs attrs{{"top_k", int64_t{5}}, {"renormalize", int64_t{1}}, {"least", int64_t{0}}};
    for (const auto& [key, value] : more)
      attrs.set(key, value);
    return message_of(ErrorKind::kCompile, [&] { (void)infer(op("route"), in, attrs); });
  };
  const auto groups = [](int64_t num, int64_t kept) {
    return ir::Attrs{{"groups", num}, {"groups_kept", kept}};
  };
  EXPECT_EQ(error(groups(3, 2)), "");
  EXPECT_EQ(error(groups(3, 1)), "op 'route': needs groups_kept that have top_k experts");
  EXPECT_EQ(error(groups(3, 4)), "op 'route': needs groups_kept that have top_k experts");
  EXPECT_EQ(error(groups(12, 8)), "op 'route': needs two experts in a group");
  EXPECT_EQ(error(groups(5, 5)),
            "op 'route': needs groups of as many experts each, 32 of them at most");
  EXPECT_EQ(error({{"score", std::string("sigmoid")}}), "");
  EXPECT_EQ(error({{"score", std::string("tanh")}}), "op 'route': needs sigmoid as 'score'");
}

TEST(Ops, MultiplyByExpertsOfOneShape) {
  const auto error = [](ir::Type gate_up, ir::Type down) {
    const ir::Types in{{"x", {DType::kBF16, {Dim::tokens(), 64}}},
                       {"experts", {DType::kI32, {Dim::tokens(), 2}}},
                       {"weights", {DType::kF32, {Dim::tokens(), 2}}},
                       {"gate_up", std::move(gate_up)},
                       {"down", std::move(down)}};
    return message_of(ErrorKind::kCompile, [&] { (void)infer(op("expert_mlp"), in, {}); });
  };
  const ir::Type gate_up{DType::kBF16, {8, 96, 64}};
  EXPECT_EQ(error(gate_up, {DType::kBF16, {8, 64, 48}}), "");
  EXPECT_NE(error(gate_up, {DType::kBF16, {8, 64, 96}}), "");
  EXPECT_NE(error(gate_up, {DType::kBF16, {7, 64, 48}}), "");
  EXPECT_NE(error({DType::kBF16, {8, 95, 64}}, {DType::kBF16, {8, 64, 48}}), "");
}

// Gate and up have blocks of scales of their own, also where their rows end within one.
TEST(Ops, MultiplyByExpertsInFp8WithTheirScales) {
  const auto error = [](DType gate_up, std::optional<ir::Type> scale) {
    ir::Types types{{"x", {DType::kBF16, {Dim::tokens(), 256}}},
                    {"experts", {DType::kI32, {Dim::tokens(), 2}}},
                    {"weights", {DType::kF32, {Dim::tokens(), 2}}},
                    {"gate_up", {gate_up, {8, 2 * 192, 256}}},
                    {"down", {DType::kBF16, {8, 256, 192}}}};
    if (scale) types.add("gate_up_scale", *scale, true);
    return message_of(ErrorKind::kCompile, [&] { (void)infer(op("expert_mlp"), types, {}); });
  };
  EXPECT_EQ(error(DType::kFP8, ir::Type{DType::kF32, {8, 384}}), "");
  EXPECT_EQ(error(DType::kFP8, ir::Type{DType::kF32, {8, 4, 2}}), "");
  EXPECT_EQ(error(DType::kFP8, ir::Type{DType::kF32, {8, 3, 2}}),
            "op 'expert_mlp': gate_up_scale is f32[8,3,2], needs f32[8,384] or f32[8,4,2]");
  EXPECT_EQ(error(DType::kFP8, {}),
            "op 'expert_mlp': needs a gate_up_scale where gate_up is fp8, and only there");
  EXPECT_EQ(error(DType::kBF16, ir::Type{DType::kF32, {8, 384}}),
            "op 'expert_mlp': needs a gate_up_scale where gate_up is fp8, and only there");
}

TEST(Ops, GatherTheColumnsOfAllRanks) {
  const ir::Types in{{"x", {DType::kF32, {Dim::sequences(), 50}}}};
  const std::string of = "lm_head";
  const ir::Types out = infer(op("all_gather"), in, {{"of", of}, {"ranks", int64_t{4}}});
  EXPECT_EQ(out["y"], (ir::Type{DType::kF32, {Dim::sequences(), 200}}));
  EXPECT_EQ(message_of(ErrorKind::kCompile,
                       [&] {
                         infer(op("all_gather"), in, {{"of", of}, {"ranks", int64_t{0}}});
                       }),
            "op 'all_gather': needs 1 rank or more");
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { infer(op("all_reduce"), in, {}); }),
            "op 'all_reduce': attribute 'of' is missing or of another type");
}

TEST(Ops, RefuseWindowsAndCapsThatHideEverything) {
  ir::Graph graph("g");
  const auto q = graph.add_input("q", {DType::kBF16, {Dim::tokens(), 64}});
  const auto cache = graph.add_value(ir::ValueKind::kState, "c", {DType::kBF16, {16, 2, 32, 16}});
  const auto table = graph.add_value(ir::ValueKind::kPersistent, "t", {DType::kI32, {8, 4}});
  const auto lens = graph.add_input("lens", {DType::kI32, {Dim::sequences()}});
  const auto starts = graph.add_input("starts", {DType::kI32, {Dim::sequences(1)}});
  const auto sinks = graph.add_weight("s", {DType::kBF16, {4}}, ir::WeightRecipe::tensor("s"));
  const auto refused = [&](const std::string& key, const ir::Attrs::Value& value) {
    return message_of(ErrorKind::kCompile, [&] {
      graph.add_node(op("attention"), {q, cache, cache, table, lens, starts, {"sinks", sinks}},
                     {{"scale", 1.0}, {key, value}});
    });
  };
  EXPECT_EQ(refused("window", int64_t{0}), "op 'attention': needs a window of 1 token or more");
  EXPECT_EQ(refused("softcap", 0.0), "op 'attention': needs a softcap above 0");
  EXPECT_EQ(message_of(ErrorKind::kCompile,
                       [&] {
                         graph.add_node(op("softcap"), {q}, {{"cap", -1.0}});
                       }),
            "op 'softcap': needs a cap above 0");
}

TEST(Ops, WriteKvInTheCachesDtype) {
  ir::Graph graph("g");
  const auto k = graph.add_input("k", {DType::kBF16, {Dim::tokens(), 32}});
  const auto slots = graph.add_input("slots", {DType::kI32, {Dim::tokens()}}, ir::Pad::kMinusOne);
  const auto written = [&](DType dtype) {
    const ir::Type type{dtype, {16, 2, 32, 16}};
    const auto k_cache = graph.add_value(ir::ValueKind::kState, "k_cache", type);
    const auto v_cache = graph.add_value(ir::ValueKind::kState, "v_cache", type);
    const ir::Node& node = graph.add_node(op("kv_write"), {k_cache, v_cache, k, k, slots});
    return graph.value(node.outputs["k_cache"]).type.dtype;
  };
  EXPECT_EQ(written(DType::kBF16), DType::kBF16);
  EXPECT_EQ(written(DType::kFP8), DType::kFP8);
  EXPECT_THROW(written(DType::kI32), Error);
  const auto a = graph.add_input("a", {DType::kFP8, {Dim::tokens(), 32}});
  EXPECT_THROW(graph.add_node(op("add"), {a, k}), Error);
}

}  // namespace
}  // namespace encore::ops
