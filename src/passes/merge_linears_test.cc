#include "passes/rewrite.h"
#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

TEST(MergeLinears, MakesOneProductOfTwoProjections) {
  expect_rewrite(merge_linears, R"(
  input %h: bf16[T,64]
  weight %wq: bf16[64,64] = "q"
  weight %wk: bf16[32,64] = "k"
  %q: bf16[T,64] = linear(%h, %wq)
  %k: bf16[T,32] = linear(%h, %wk)
  %x: bf16[T,64] = silu(%q)
  output %x
  output %k
)",
                 R"(
  input %h: bf16[T,64]
  weight %wq_wk: bf16[96,64] = concat("q", "k")
  %q_k: bf16[T,96] = linear(%h, %wq_wk)
  %q: bf16[T,64], %k: bf16[T,32] = split(%q_k) {sizes=[64,32]}
  %x: bf16[T,64] = silu(%q)
  output %x
  output %k
)");
}

TEST(MergeLinears, MergesBiasesAndPiecesOfPieces) {
  expect_rewrite(merge_linears, R"(
  input %h: bf16[T,64]
  weight %l0.q.weight: bf16[64,64] = concat("a"[0:32], "b"[32:64])
  weight %l0.q.bias: bf16[64] = "qb"
  weight %l0.k.weight: bf16[32,64] = "k"
  weight %l0.k.bias: bf16[32] = "kb"
  weight %l0.v.weight: bf16[16,64] = "v"[0:16]
  weight %l0.v.bias: bf16[16] = "vb"
  %q: bf16[T,64] = linear(%h, %l0.q.weight, bias=%l0.q.bias)
  %k: bf16[T,32] = linear(%h, %l0.k.weight, bias=%l0.k.bias)
  %v: bf16[T,16] = linear(%h, %l0.v.weight, bias=%l0.v.bias)
  output %q
  output %k
  output %v
)",
                 R"(
  input %h: bf16[T,64]
  weight %l0.q_k_v.weight: bf16[112,64] = concat("a"[0:32], "b"[32:64], "k", "v"[0:16])
  weight %l0.q_k_v.bias: bf16[112] = concat("qb", "kb", "vb")
  %q_k_v: bf16[T,112] = linear(%h, %l0.q_k_v.weight, bias=%l0.q_k_v.bias)
  %q: bf16[T,64], %k: bf16[T,32], %v: bf16[T,16] = split(%q_k_v) {sizes=[64,32,16]}
  output %q
  output %k
  output %v
)");
}

// Each product keeps its own rows of the merged A, and its B still reads the columns of these rows.
TEST(MergeLinears, MergesWhatAdaptersAdd) {
  expect_rewrite(merge_linears, R"(
  input %h: bf16[T,64]
  input %slots: i32[T] pad -1
  weight %q.weight: bf16[48,64] = "q"
  weight %q.lora_a: bf16[2,8,64] = slots("q.lora_A")
  weight %q.lora_b: bf16[2,48,8] = slots("q.lora_B"[16:32], "q.lora_B"[0:16], "q.lora_B"[32:48])
  weight %k.weight: bf16[16,64] = "k"
  weight %k.lora_a: bf16[2,8,64] = slots("k.lora_A")
  weight %k.lora_b: bf16[2,16,8] = slots("k.lora_B"[0:16])
  %q: bf16[T,48] = linear(%h, %q.weight, lora_a=%q.lora_a, lora_b=%q.lora_b, adapters=%slots)
  %k: bf16[T,16] = linear(%h, %k.weight, lora_a=%k.lora_a, lora_b=%k.lora_b, adapters=%slots)
  output %q
  output %k
)",
                 R"(
  input %h: bf16[T,64]
  input %slots: i32[T] pad -1
  weight %q_k.weight: bf16[64,64] = concat("q", "k")
  weight %q_k.lora_a: bf16[2,16,64] = slots("q.lora_A", "k.lora_A")
  weight %q_k.lora_b: bf16[2,64,8] = slots("q.lora_B"[16:32], "q.lora_B"[0:16], "q.lora_B"[32:48], "k.lora_B"[0:16])
  %q_k: bf16[T,64] = linear(%h, %q_k.weight, lora_a=%q_k.lora_a, lora_b=%q_k.lora_b, adapters=%slots) {lora_blocks=[48,16]}
  %q: bf16[T,48], %k: bf16[T,16] = split(%q_k) {sizes=[48,16]}
  output %q
  output %k
)");
}

TEST(MergeLinears, LeavesProductsWhoseRowsHaveOtherAdapters) {
  expect_unchanged(merge_linears, R"(
  input %h: bf16[T,64]
  input %slots: i32[T] pad -1
  weight %q.weight: bf16[48,64] = "q"
  weight %q.lora_a: bf16[2,8,64] = slots("q.lora_A")
  weight %q.lora_b: bf16[2,48,8] = slots("q.lora_B"[0:48])
  weight %k.weight: bf16[16,64] = "k"
  %q: bf16[T,48] = linear(%h, %q.weight, lora_a=%q.lora_a, lora_b=%q.lora_b, adapters=%slots)
  %k: bf16[T,16] = linear(%h, %k.weight)
  output %q
  output %k
)");
}

TEST(MergeLinears, MergesScalesOfRows) {
  expect_rewrite(merge_linears, R"(
  input %h: bf16[T,64]
  weight %q.weight: fp8[24,64] = "q"
  weight %q.scale: f32[24] = "qs"
  weight %k.weight: fp8[8,64] = "k"
  weight %k.scale: f32[8] = "ks"
  %q: bf16[T,24] = linear(%h, %q.weight, scale=%q.scale) {fp8_rows=33}
  %k: bf16[T,8] = linear(%h, %k.weight, scale=%k.scale) {fp8_rows=33}
  output %q
  output %k
)",
                 R"(
  input %h: bf16[T,64]
  weight %q_k.weight: fp8[32,64] = concat("q", "k")
  weight %q_k.scale: f32[32] = concat("qs", "ks")
  %q_k: bf16[T,32] = linear(%h, %q_k.weight, scale=%q_k.scale) {fp8_rows=33}
  %q: bf16[T,24], %k: bf16[T,8] = split(%q_k) {sizes=[24,8]}
  output %q
  output %k
)");
}

// A block of scales covers 128 rows, which must not belong to two weights (vllm-project/vllm issue
// 52997).
TEST(MergeLinears, MergesBlocksOfScalesOnTheirBorders) {
  expect_rewrite(merge_linears, R"(
  input %h: bf16[T,200]
  weight %q.weight: fp8[256,200] = "q"
  weight %q.scale: f32[2,2] = "qs"
  weight %k.weight: fp8[64,200] = "k"
  weight %k.scale: f32[1,2] = "ks"
  weight %v.weight: fp8[64,200] = "v"
  weight %v.scale: f32[1,2] = "vs"
  %q: bf16[T,256] = linear(%h, %q.weight, scale=%q.scale)
  %k: bf16[T,64] = linear(%h, %k.weight, scale=%k.scale)
  %v: bf16[T,64] = linear(%h, %v.weight, scale=%v.scale)
  output %q
  output %k
  output %v
)",
                 R"(
  input %h: bf16[T,200]
  weight %v.weight: fp8[64,200] = "v"
  weight %v.scale: f32[1,2] = "vs"
  weight %q_k.weight: fp8[320,200] = concat("q", "k")
  weight %q_k.scale: f32[3,2] = concat("qs", "ks")
  %q_k: bf16[T,320] = linear(%h, %q_k.weight, scale=%q_k.scale)
  %q: bf16[T,256], %k: bf16[T,64] = split(%q_k) {sizes=[256,64]}
  %v: bf16[T,64] = linear(%h, %v.weight, scale=%v.scale)
  output %q
  output %k
  output %v
)");
}

// Siblings may have different formats, because a checkpoint's tensors may.
TEST(MergeLinears, LeavesSiblingsOfOtherFormats) {
  expect_unchanged(merge_linears, R"(
  input %h: bf16[T,64]
  weight %q.weight: fp8[128,64] = "q"
  weight %q.scale: f32[128] = "qs"
  weight %k.weight: fp8[128,64] = "k"
  weight %k.scale: f32[1,1] = "ks"
  weight %v.weight: bf16[128,64] = "v"
  weight %u.weight: fp8[128,64] = "u"
  weight %u.scale: f32[128] = "us"
  %q: bf16[T,128] = linear(%h, %q.weight, scale=%q.scale)
  %k: bf16[T,128] = linear(%h, %k.weight, scale=%k.scale)
  %v: bf16[T,128] = linear(%h, %v.weight)
  %u: bf16[T,128] = linear(%h, %u.weight, scale=%u.scale) {fp8_rows=1}
  output %q
  output %k
  output %v
  output %u
)");
}

TEST(MergeLinears, MergesOnlySiblingsThatAgreeOnABias) {
  expect_rewrite(merge_linears, R"(
  input %h: bf16[T,64]
  weight %wa: bf16[64,64] = "a"
  weight %wb: bf16[64,64] = "b"
  weight %bb: bf16[64] = "bb"
  weight %wc: bf16[64,64] = "c"
  %a: bf16[T,64] = linear(%h, %wa)
  %b: bf16[T,64] = linear(%h, %wb, bias=%bb)
  %c: bf16[T,64] = linear(%h, %wc)
  output %a
  output %b
  output %c
)",
                 R"(
  input %h: bf16[T,64]
  weight %wb: bf16[64,64] = "b"
  weight %bb: bf16[64] = "bb"
  weight %wa_wc: bf16[128,64] = concat("a", "c")
  %a_c: bf16[T,128] = linear(%h, %wa_wc)
  %a: bf16[T,64], %c: bf16[T,64] = split(%a_c) {sizes=[64,64]}
  %b: bf16[T,64] = linear(%h, %wb, bias=%bb)
  output %a
  output %b
  output %c
)");
}

TEST(MergeLinears, KeepsTheOutputDType) {
  expect_rewrite(merge_linears, R"(
  input %h: bf16[T,64]
  weight %wa: bf16[64,64] = "a"
  weight %wb: bf16[32,64] = "b"
  %a: f32[T,64] = linear(%h, %wa) {out=f32}
  %b: f32[T,32] = linear(%h, %wb) {out=f32}
  output %a
  output %b
)",
                 R"(
  input %h: bf16[T,64]
  weight %wa_wb: bf16[96,64] = concat("a", "b")
  %a_b: f32[T,96] = linear(%h, %wa_wb) {out=f32}
  %a: f32[T,64], %b: f32[T,32] = split(%a_b) {sizes=[64,32]}
  output %a
  output %b
)");
}

TEST(MergeLinears, LeavesProjectionsOfDifferentInputs) {
  expect_unchanged(merge_linears, R"(
  input %h: bf16[T,64]
  input %g: bf16[T,64]
  weight %wa: bf16[64,64] = "a"
  weight %wb: bf16[64,64] = "b"
  %a: bf16[T,64] = linear(%h, %wa)
  %b: bf16[T,64] = linear(%g, %wb)
  output %a
  output %b
)");
}

TEST(MergeLinears, LeavesAWeightThatTwoProjectionsShare) {
  expect_unchanged(merge_linears, R"(
  input %h: bf16[T,64]
  weight %wa: bf16[64,64] = "a"
  %a: bf16[T,64] = linear(%h, %wa)
  %b: bf16[T,64] = linear(%h, %wa)
  output %a
  output %b
)");
}

// With a tied embedding another op reads the weight, so the embedding table must stay as it is.
TEST(MergeLinears, LeavesAWeightThatAnotherOpReads) {
  expect_unchanged(merge_linears, R"(
  input %ids: i32[T] pad -1
  weight %table: bf16[64,64] = "embed"
  weight %fill: f32[1] = constant(0)
  weight %wb: bf16[64,64] = "b"
  %h: bf16[T,64] = embedding(%ids, %table, %fill)
  %a: bf16[T,64] = linear(%h, %table)
  %b: bf16[T,64] = linear(%h, %wb)
  output %a
  output %b
)");
}

TEST(MergeLinears, LeavesABiasThatTwoProjectionsShare) {
  expect_unchanged(merge_linears, R"(
  input %h: bf16[T,64]
  weight %wa: bf16[64,64] = "a"
  weight %wb: bf16[64,64] = "b"
  weight %bias: bf16[64] = "bias"
  %a: bf16[T,64] = linear(%h, %wa, bias=%bias)
  %b: bf16[T,64] = linear(%h, %wb, bias=%bias)
  output %a
  output %b
)");
}

TEST(MergeLinears, LeavesDifferentOutputDTypes) {
  expect_unchanged(merge_linears, R"(
  input %h: bf16[T,64]
  weight %wa: bf16[64,64] = "a"
  weight %wb: bf16[64,64] = "b"
  %a: bf16[T,64] = linear(%h, %wa)
  %b: f32[T,64] = linear(%h, %wb) {out=f32}
  output %a
  output %b
)");
}

// Both linears have the same output dtype, but only one has the attribute `out`. The pass compares
// the attributes, not what they mean.
TEST(MergeLinears, LeavesDifferentAttributes) {
  expect_unchanged(merge_linears, R"(
  input %h: bf16[T,64]
  weight %wa: bf16[64,64] = "a"
  weight %wb: bf16[64,64] = "b"
  %a: bf16[T,64] = linear(%h, %wa)
  %b: bf16[T,64] = linear(%h, %wb) {out=bf16}
  output %a
  output %b
)");
}

TEST(MergeLinears, LeavesWeightsOfDifferentDTypes) {
  static const ir::OpSet kOps = [] {
    ir::OpSet ops;
    ops.add(*ops::standard().find("split"));
    ir::Op linear = *ops::standard().find("linear");
    linear.inputs = "x any[R,I], weight any[O,I]";
    linear.outputs = "y bf16[R,O]";
    ops.add(linear);
    return ops;
  }();
  const std::string text =
      "graph g {\n  input %h: bf16[T,64]\n  weight %wa: bf16[64,64] = \"a\"\n"
      "  weight %wb: f16[64,64] = \"b\"\n  %a: bf16[T,64] = linear(%h, %wa)\n"
      "  %b: bf16[T,64] = linear(%h, %wb)\n  output %a\n  output %b\n}\n";
  Program program(listing::parse(text, kOps));
  merge_linears(program, kOps);
  EXPECT_EQ(listing::print(program.graph), text);
}

TEST(MergeLinears, LeavesAWeightThatIsAConstant) {
  expect_unchanged(merge_linears, R"(
  input %h: bf16[T,2]
  weight %wa: bf16[2,2] = constant(1, 0, 0, 1)
  weight %wb: bf16[2,2] = "b"
  %a: bf16[T,2] = linear(%h, %wa)
  %b: bf16[T,2] = linear(%h, %wb)
  output %a
  output %b
)");
}

TEST(MergeLinears, LeavesAWeightThatANodeMade) {
  expect_unchanged(merge_linears, R"(
  input %h: bf16[T,64]
  weight %wa: bf16[64,64] = "a"
  weight %wb: bf16[64,64] = "b"
  %made: bf16[64,64] = silu(%wa)
  %a: bf16[T,64] = linear(%h, %made)
  %b: bf16[T,64] = linear(%h, %wb)
  output %a
  output %b
)");
}

TEST(JoinNames, KeepsWhatIsSharedOnce) {
  EXPECT_EQ(join_names({"wq", "wk", "wv"}), "wq_wk_wv");
  EXPECT_EQ(join_names({"l0.q.weight", "l0.k.weight"}), "l0.q_k.weight");
  EXPECT_EQ(join_names({"l0.gate_proj.weight", "l0.up_proj.weight"}),
            "l0.gate_proj_up_proj.weight");
  EXPECT_EQ(join_names({"l0.weight", "l0.k.weight"}), "l0.weight_k.weight");
  EXPECT_EQ(join_names({"y", "y.1"}), "y_y.1");
}

}  // namespace
}  // namespace encore::passes
