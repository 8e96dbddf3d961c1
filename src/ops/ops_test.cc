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
  EXPECT_EQ(error(DType::kFP8, by_row, {{"fp8_rows", int64_t{1}}}), "");
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

TEST(Ops, RefuseBlocksOfAdaptersWithoutRows) {
  const ir::Types in{{"x", {DType::kBF16, {Dim::tokens(), 64}}},
                     {"weight", {DType::kBF16, {48, 64}}},
                     {"lora_a", {DType::kBF16, {2, 24, 64}}},
                     {"lora_b", {DType::kBF16, {2, 48, 8}}},
                     {"adapters", {DType::kI32, {Dim::tokens()}}}};
  EXPECT_EQ(message_of(
                ErrorKind::kCompile,
                [&] {
                  (void)infer(op("linear"), in, {{"lora_blocks", std::vector<int64_t>{32, 16, 0}}});
                }),
            "op 'linear': needs positive lora_blocks");
}

TEST(Ops, AddAdaptersToAsManyColumnsAsTheirRows) {
  const auto expand = [](int64_t columns, const ir::Attrs& attrs) {
    const ir::Types in{{"base", {DType::kBF16, {Dim::tokens(), columns}}},
                       {"h", {DType::kF32, {Dim::tokens(), 8}}},
                       {"b", {DType::kBF16, {2, 48, 8}}},
                       {"adapters", {DType::kI32, {Dim::tokens()}}}};
    return infer(op("lora_expand"), in, attrs)["y"];
  };
  EXPECT_EQ(expand(48, {}), (ir::Type{DType::kBF16, {Dim::tokens(), 48}}));
  EXPECT_EQ(expand(48, {{"epilogue", std::string("silu_mul")}}),
            (ir::Type{DType::kBF16, {Dim::tokens(), 24}}));
  EXPECT_EQ(
      message_of(ErrorKind::kCompile, [&] { (void)expand(64, {}); }),
      "op 'lora_expand': b is bf16[2,48,8], needs float[S,O,K] with float = bf16, O = 64, S = 2");
  const ir::Attrs two_blocks{{"lora_blocks", std::vector<int64_t>{24, 24}}};
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { (void)expand(48, two_blocks); }),
            "op 'lora_expand': needs K rows of A for each of the lora_blocks");
}

TEST(Ops, GiveProductsTheDtypeThatIsAskedFor) {
  const auto out = [](const std::string& dtype) {
    const ir::Types in{{"x", {DType::kBF16, {Dim::tokens(), 64}}},
                       {"weight", {DType::kBF16, {48, 64}}}};
    return infer(op("linear"), in, {{"out", dtype}})["y"].dtype;
  };
  EXPECT_EQ(out("f32"), DType::kF32);
  EXPECT_EQ(out("f16"), DType::kF16);
  for (const char* refused : {"i32", "fp8", "double"}) {
    EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { (void)out(refused); }),
              "op 'linear': needs a float dtype in 'out'");
  }
}

TEST(Ops, SplitColumnsIntoPartsThatHaveSome) {
  const auto split = [](std::vector<int64_t> sizes) {
    const ir::Types in{{"x", {DType::kF32, {Dim::tokens(), 64}}}};
    return infer(op("split"), in, {{"sizes", std::move(sizes)}});
  };
  const ir::Types columns = split({48, 16});
  ASSERT_EQ(columns.size(), 2);
  const std::vector<ir::Type> types = columns.values();
  EXPECT_EQ(types[0], (ir::Type{DType::kF32, {Dim::tokens(), 48}}));
  EXPECT_EQ(types[1], (ir::Type{DType::kF32, {Dim::tokens(), 16}}));
  const auto error = [&](std::vector<int64_t> sizes) {
    return message_of(ErrorKind::kCompile, [&] { (void)split(std::move(sizes)); });
  };
  EXPECT_EQ(error({48, 15}), "op 'split': needs sizes that sum to N");
  EXPECT_EQ(error({63, 1}), "");
  EXPECT_EQ(error({64, 0}), "op 'split': needs positive sizes");
}

TEST(Ops, ExtendDraftsInTheRowsBehindTheFirst) {
  const auto error = [](int64_t place, int64_t page_size) {
    const ir::Type by_sequence{DType::kI32, {Dim::guessing()}};
    const ir::Types in{{"next", by_sequence},
                       {"positions", by_sequence},
                       {"lens", by_sequence},
                       {"page_table", {DType::kI32, {8, 4}}},
                       {"logits_rows", {DType::kI32, {Dim::logits()}}},
                       {"lengths", {DType::kI32, {Dim::logits()}}},
                       {"ids", {DType::kI32, {Dim::tokens()}}}};
    return message_of(ErrorKind::kCompile, [&] {
      (void)infer(op("extend_drafts"), in, {{"place", place}, {"page_size", page_size}});
    });
  };
  EXPECT_EQ(error(1, 1), "");
  EXPECT_EQ(error(0, 16), "op 'extend_drafts': needs a place above 0");
  EXPECT_EQ(error(1, 0), "op 'extend_drafts': needs a page_size above 0");
}

TEST(Ops, AdvanceOverPagesOfSomeSlotsAndRingsOfAPowerOfTwo) {
  const auto error = [](int64_t page_size, int64_t steps) {
    const ir::Type by_sequence{DType::kI32, {Dim::sequences()}};
    const ir::Type by_token{DType::kI32, {Dim::tokens()}};
    const ir::Types in{{"next", {DType::kI32, {Dim::logits()}}},
                       {"page_table", {DType::kI32, {8, 4}}},
                       {"stop_tokens", {DType::kI32, {Dim::sequences(), 8}}},
                       {"max_lens", by_sequence},
                       {"ids", by_token},
                       {"positions", by_token},
                       {"slots", by_token},
                       {"kv_lens", by_sequence},
                       {"last_tokens", {DType::kI32, {8}}},
                       {"step_clock", {DType::kI32, {2}}},
                       {"token_ring", {DType::kI32, {steps, 8}}},
                       {"ring_marks", {DType::kI32, {32}}}};
    return message_of(ErrorKind::kCompile, [&] {
      (void)infer(op("advance"), in, {{"page_size", page_size}});
    });
  };
  EXPECT_EQ(error(1, 128), "");
  EXPECT_EQ(error(0, 128), "op 'advance': needs a page_size above 0");
  EXPECT_EQ(error(16, 96), "op 'advance': needs a power of two as the ring's E");
}

TEST(Ops, FuseProductsWithANormOrAnEpilogue) {
  const auto y = [](bool has_norm, const ir::Attrs& attrs, int64_t outputs = 48) {
    ir::Types in{{"x", {DType::kBF16, {Dim::tokens(), 64}}},
                 {"weight", {DType::kBF16, {outputs, 64}}}};
    if (has_norm) in.add("norm", {DType::kBF16, {64}}, true);
    return infer(op("fused_linear"), in, attrs)["y"];
  };
  const ir::Attrs::Value silu_mul = std::string("silu_mul");
  EXPECT_EQ(y(true, {{"eps", 1e-5}}), (ir::Type{DType::kBF16, {Dim::tokens(), 48}}));
  EXPECT_EQ(y(false, {{"epilogue", silu_mul}}), (ir::Type{DType::kBF16, {Dim::tokens(), 24}}));
  const auto error = [&](bool has_norm, const ir::Attrs& attrs, int64_t outputs = 48) {
    return message_of(ErrorKind::kCompile, [&] { (void)y(has_norm, attrs, outputs); });
  };
  EXPECT_EQ(error(false, {}), "op 'fused_linear': needs a norm or an 'epilogue'");
  EXPECT_NE(error(true, {}), "") << "a norm has an eps";
  EXPECT_EQ(error(false, {{"epilogue", std::string("gelu")}}),
            "op 'fused_linear': needs silu_mul as 'epilogue'");
  EXPECT_EQ(error(false, {{"epilogue", silu_mul}}, 47),
            "op 'fused_linear': needs an even number of outputs for silu_mul");
}

TEST(Ops, CountExpertsOfLayersThatThereAre) {
  const auto error = [](int64_t layer) {
    const ir::Types in{{"experts", {DType::kI32, {Dim::tokens(), 2}}},
                       {"counts", {DType::kI32, {3, 8, 2}}},
                       {"steps", {DType::kI32, {3}}}};
    return message_of(ErrorKind::kCompile, [&] {
      (void)infer(op("count_experts"), in, {{"layer", layer}});
    });
  };
  EXPECT_EQ(error(0), "");
  EXPECT_EQ(error(2), "");
  EXPECT_EQ(error(3), "op 'count_experts': needs a layer from 0 to N - 1");
  EXPECT_EQ(error(-1), "op 'count_experts': needs a layer from 0 to N - 1");
}

TEST(Ops, DrawExpertsForARowOfSharesBehindAClock) {
  const auto error = [](bool has_clock, const ir::Attrs& more) {
    ir::Types in{{"logits", {DType::kF32, {Dim::tokens(), 8}}},
                 {"live", {DType::kI32, {Dim::tokens()}}}};
    if (has_clock) in.add("step_clock", {DType::kI32, {2}}, true);
    ir::Attrs attrs{{"top_k", int64_t{2}}, {"renormalize", int64_t{0}}, {"least", int64_t{0}}};
    for (const auto& [key, value] : more)
      attrs.set(key, value);
    return message_of(ErrorKind::kCompile, [&] { (void)infer(op("route"), in, attrs); });
  };
  EXPECT_EQ(error(true, {{"drawn", int64_t{1}}}), "");
  EXPECT_NE(error(true, {}), "") << "of which layer?";
  EXPECT_EQ(error(false, {}), "");
  const auto of_shares = [](int64_t drawn) {
    const ir::Types in{{"logits", {DType::kF32, {Dim::tokens(), 8}}},
                       {"live", {DType::kI32, {Dim::tokens()}}},
                       {"step_clock", {DType::kI32, {2}}},
                       {"shares", {DType::kF32, {3, 8}}}};
    return message_of(ErrorKind::kCompile, [&] {
      (void)infer(op("route"), in,
                  {{"top_k", int64_t{2}},
                   {"renormalize", int64_t{0}},
                   {"least", int64_t{0}},
                   {"drawn", drawn}});
    });
  };
  EXPECT_EQ(of_shares(1), "");
  EXPECT_EQ(of_shares(3), "");
  EXPECT_EQ(of_shares(0), "op 'route': needs a 'drawn' from 1 to the rows of shares");
  EXPECT_EQ(of_shares(4), "op 'route': needs a 'drawn' from 1 to the rows of shares");
}

TEST(Ops, RouteBehindANormAndAProductAsByThemselves) {
  const auto route = [](const ir::Attrs& more) {
    const ir::Types in{{"x", {DType::kBF16, {Dim::tokens(), 64}}},
                       {"norm", {DType::kBF16, {64}}},
                       {"weight", {DType::kBF16, {8, 64}}},
                       {"live", {DType::kI32, {Dim::tokens()}}}};
    ir::Attrs attrs{
        {"eps", 1e-5}, {"top_k", int64_t{2}}, {"renormalize", int64_t{0}}, {"least", int64_t{0}}};
    for (const auto& [key, value] : more)
      attrs.set(key, value);
    return infer(op("fused_route"), in, attrs);
  };
  const ir::Attrs in_f32{{"out", std::string("f32")}};
  const ir::Types out = route(in_f32);
  EXPECT_EQ(out["experts"], (ir::Type{DType::kI32, {Dim::tokens(), 2}}));
  EXPECT_EQ(out["weights"], (ir::Type{DType::kF32, {Dim::tokens(), 2}}));
  const auto error = [&](const ir::Attrs& attrs) {
    return message_of(ErrorKind::kCompile, [&] { (void)route(attrs); });
  };
  EXPECT_EQ(error({}), "op 'fused_route': needs f32 as 'out'");
  EXPECT_EQ(error({{"out", std::string("f32")}, {"top_k", int64_t{8}}}), "");
  EXPECT_EQ(error({{"out", std::string("f32")}, {"top_k", int64_t{9}}}),
            "op 'fused_route': needs a top_k from 1 to the number of experts");
}

TEST(Ops, FuseAttentionWithAllThatItsPartsRefuse) {
  const auto error = [](bool has_norm, const ir::Attrs& more) {
    const ir::Type kv{DType::kBF16, {Dim::tokens(), 32}};
    const ir::Type cache{DType::kBF16, {16, 2, 32, 16}};
    const ir::Type by_token{DType::kI32, {Dim::tokens()}};
    ir::Types in{{"q", {DType::kBF16, {Dim::tokens(), 64}}},
                 {"k", kv},
                 {"v", kv},
                 {"positions", by_token},
                 {"inv_freq", {DType::kF32, {8}}},
                 {"slots", by_token},
                 {"k_cache", cache},
                 {"v_cache", cache},
                 {"page_table", {DType::kI32, {8, 4}}},
                 {"kv_lens", {DType::kI32, {Dim::sequences()}}},
                 {"query_starts", {DType::kI32, {Dim::sequences(1)}}}};
    if (has_norm) in.add("q_norm", {DType::kBF16, {16}}, true);
    ir::Attrs attrs{{"scale", 0.25}};
    for (const auto& [key, value] : more)
      attrs.set(key, value);
    return message_of(ErrorKind::kCompile, [&] { (void)infer(op("fused_attention"), in, attrs); });
  };
  EXPECT_EQ(error(false, {{"window", int64_t{1}}}), "");
  EXPECT_EQ(error(true, {}), "op 'fused_attention': needs q_norm and k_norm both or neither");
  EXPECT_EQ(error(false, {{"window", int64_t{0}}}),
            "op 'fused_attention': needs a window of 1 token or more");
}

TEST(Ops, LookUpDraftsForTheRowsOfLogits) {
  const auto lookup = [](int64_t max_match) {
    const ir::Type by_token{DType::kI32, {Dim::tokens()}};
    const ir::Type by_sequence{DType::kI32, {Dim::sequences()}};
    const ir::Types in{{"ids", by_token},
                       {"slots", by_token},
                       {"kv_lens", by_sequence},
                       {"last_rows", by_sequence},
                       {"sampling", {DType::kI32, {Dim::sequences(), 16}}},
                       {"page_table", {DType::kI32, {8, 4}}},
                       {"last_tokens", {DType::kI32, {8}}},
                       {"token_cache", {DType::kI32, {16, 32}}}};
    return infer(op("lookup_drafts"), in, {{"max_match", max_match}});
  };
  const ir::Types out = lookup(1);
  EXPECT_EQ(out["logits_rows"].dims[0], Dim::logits());
  EXPECT_EQ(out["lengths"].dims[0], Dim::logits());
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { (void)lookup(0); }),
            "op 'lookup_drafts': needs a max_match above 0");
}

TEST(Ops, LogProbabilitiesGoToARingOfAPowerOfTwo) {
  const auto error = [](int64_t steps) {
    const ir::Types in{{"logits", {DType::kF32, {Dim::logits(), 100}}},
                       {"next", {DType::kI32, {Dim::logits()}}},
                       {"sampling", {DType::kI32, {Dim::sequences(), 16}}},
                       {"step_clock", {DType::kI32, {2}}},
                       {"logprob_ring", {DType::kI32, {steps, 8, 43}}}};
    return message_of(ErrorKind::kCompile, [&] { (void)infer(op("log_probs"), in, {}); });
  };
  EXPECT_EQ(error(64), "");
  EXPECT_EQ(error(96), "op 'log_probs': needs a power of two as the ring's E");
}

TEST(Ops, CapAboveNothing) {
  const auto error = [](double cap) {
    const ir::Types in{{"x", {DType::kF32, {Dim::tokens(), 8}}}};
    return message_of(ErrorKind::kCompile, [&] { (void)infer(op("softcap"), in, {{"cap", cap}}); });
  };
  EXPECT_EQ(error(0.5), "");
  EXPECT_EQ(error(0), "op 'softcap': needs a cap above 0");
}

TEST(Ops, BeginDraftsWithTheRowsOfBothKindsOfSteps) {
  const ir::Type by_token{DType::kI32, {Dim::tokens()}};
  const ir::Type by_sequence{DType::kI32, {Dim::sequences()}};
  const ir::Types in{{"ids", by_token},
                     {"positions", by_token},
                     {"slots", by_token},
                     {"kv_lens", by_sequence},
                     {"last_rows", by_sequence},
                     {"sampling", {DType::kI32, {Dim::sequences(), 16}}},
                     {"last_tokens", {DType::kI32, {8}}}};
  const ir::Types out = infer(op("begin_drafts"), in, {});
  for (const char* name : {"logits_rows", "lengths"})
    EXPECT_EQ(out[name].dims[0], Dim::logits()) << name;
  for (const char* name : {"last_ids", "last_positions", "last_slots", "last_lens"})
    EXPECT_EQ(out[name].dims[0], Dim::guessing()) << name;
  EXPECT_EQ(out["starts"].dims[0], Dim::guessing(1));
  for (const char* name : {"read_ids", "read_positions", "read_slots"})
    EXPECT_EQ(out[name].dims[0], Dim::unguessed()) << name;
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
  EXPECT_EQ(error(groups(6, 3)), "") << "of two experts each";
  EXPECT_EQ(error(groups(1, 1)), "") << "all in one";
  EXPECT_EQ(error(groups(3, 0)), "op 'route': needs groups_kept that have top_k experts");
  EXPECT_EQ(error(groups(5, 5)),
            "op 'route': needs groups of as many experts each, 32 of them at most");
  EXPECT_EQ(error({{"score", std::string("sigmoid")}}), "");
  EXPECT_EQ(error({{"score", std::string("tanh")}}), "op 'route': needs sigmoid as 'score'");
  EXPECT_EQ(error({{"factor", 2.5}}), "");
  EXPECT_EQ(error({{"factor", 1e300}}), "op 'route': needs a finite factor");
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

// The rows of gate and of up in gate_up have separate blocks of scales, even if the rows of gate
// end within a block.
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
  ir::Types down{{"x", {DType::kBF16, {Dim::tokens(), 320}}},
                 {"experts", {DType::kI32, {Dim::tokens(), 2}}},
                 {"weights", {DType::kF32, {Dim::tokens(), 2}}},
                 {"gate_up", {DType::kBF16, {8, 2 * 192, 320}}},
                 {"down", {DType::kFP8, {8, 320, 192}}},
                 {"down_scale", {DType::kF32, {8, 3, 2}}}};
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { (void)infer(op("expert_mlp"), down, {}); }), "")
      << "down is one matrix, whose last block is not full";
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
  EXPECT_EQ(out.find("run_until"), nullptr);
  ir::Types with_marks = in;
  with_marks.add("ring_marks", {DType::kI32, {32}}, true);
  const ir::Types told = infer(op("all_gather"), with_marks, {{"of", of}, {"ranks", int64_t{4}}});
  EXPECT_EQ(told["run_until"], (ir::Type{DType::kI32, {1}}));
  EXPECT_EQ(message_of(ErrorKind::kCompile,
                       [&] {
                         infer(op("all_gather"), in, {{"of", of}, {"ranks", int64_t{0}}});
                       }),
            "op 'all_gather': needs 1 rank or more");
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { infer(op("all_reduce"), in, {}); }),
            "op 'all_reduce': attribute 'of' is missing or of another type");
}

TEST(Ops, OfferCandidatesOfColumnsThatTheLogitsHave) {
  const ir::Type rows{DType::kF32, {Dim::logits(), 100}};
  const ir::Types in{{"logits", rows},
                     {"adjusted", rows},
                     {"sampling", {DType::kI32, {Dim::sequences(), 16}}},
                     {"kv_lens", {DType::kI32, {Dim::logits()}}}};
  const auto attrs = [](int64_t first, int64_t columns) {
    return ir::Attrs{{"first_column", first}, {"columns", columns}};
  };
  const ir::Types out = infer(op("own_largest"), in, attrs(60, 40));
  EXPECT_EQ(out["largest"], (ir::Type{DType::kF32, {Dim::logits(), 2}}));
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { infer(op("own_largest"), in, attrs(61, 40)); }),
            "op 'own_largest': needs columns that the logits have");
  ir::Types and_largest = in;
  and_largest.add("largest", {DType::kF32, {Dim::logits(), 4}});
  ir::Attrs counted = attrs(0, 50);
  counted.set("num_candidates", int64_t{7});
  EXPECT_EQ(infer(op("own_candidates"), and_largest, counted)["candidates"],
            (ir::Type{DType::kF32, {Dim::logits(), 21}}));
  counted.set("num_candidates", int64_t{0});
  EXPECT_EQ(
      message_of(ErrorKind::kCompile, [&] { infer(op("own_candidates"), and_largest, counted); }),
      "op 'own_candidates': needs 1 candidate or more");
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
