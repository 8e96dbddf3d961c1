#include "passes/testing/attention_inputs.h"
#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

const std::string kCaches = "%kc1: bf16[4,1,16,32], %vc1: bf16[4,1,16,32]";
const std::string kWrite =
    "  %q1: bf16[T,64], " + kCaches + " = rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc)\n";
const std::string kAttention =
    "  %o: bf16[T,64] = attention(%q1, %kc1, %vc1, %pages, %lens, %starts) {scale=0.125}\n";
const std::string kOutput = "  output %o\n";
const std::string kFused =
    "  %o: bf16[T,64], " + kCaches +
    " = fused_attention(%q, %k, %v, %pos, %f, %slots, %kc, %vc, %pages, %lens, %starts";

TEST(FuseAttentionPrologue, PutsRotationAndCacheWriteIntoTheAttentionThatReadsThem) {
  expect_rewrite(fuse_attention_prologue, kInputs + kWrite + kAttention + kOutput,
                 kInputs + kFused + ") {scale=0.125}\n" + kOutput);
}

TEST(FuseAttentionPrologue, TakesNormsPerHeadAlong) {
  const std::string norms = "  weight %qn: bf16[32] = \"qn\"\n  weight %kn: bf16[32] = \"kn\"\n";
  expect_rewrite(
      fuse_attention_prologue,
      kInputs + norms + "  %q1: bf16[T,64], " + kCaches +
          " = rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc, q_norm=%qn, k_norm=%kn) "
          "{eps=1e-06}\n" +
          kAttention + kOutput,
      kInputs + norms + kFused + ", q_norm=%qn, k_norm=%kn) {eps=1e-06, scale=0.125}\n" + kOutput);
}

TEST(FuseAttentionPrologue, StandsWhereAttentionStood) {
  const std::string between = "  %half: bf16[T,64] = silu(%q)\n";
  expect_rewrite(fuse_attention_prologue,
                 kInputs + kWrite + between + kAttention + kOutput + "  output %half\n",
                 kInputs + between + kFused + ") {scale=0.125}\n" + kOutput + "  output %half\n");
}

TEST(FuseAttentionPrologue, LeavesRotatedQueriesThatAnotherNodeReads) {
  expect_unchanged(
      fuse_attention_prologue,
      kInputs + kWrite + kAttention + "  %s: bf16[T,64] = silu(%q1)\n  output %s\n" + kOutput);
}

TEST(FuseAttentionPrologue, LeavesTheNewCacheToASecondAttention) {
  const std::string second =
      "  %p: bf16[T,64] = attention(%q, %kc1, %vc1, %pages, %lens, %starts) {scale=0.125}\n"
      "  output %p\n";
  expect_rewrite(fuse_attention_prologue, kInputs + kWrite + kAttention + second + kOutput,
                 kInputs + kFused + ") {scale=0.125}\n" + second + kOutput);
  expect_unchanged(fuse_attention_prologue, kInputs + kWrite + second + kAttention + kOutput);
}

TEST(FuseAttentionPrologue, LeavesAttentionOverOtherCaches) {
  expect_unchanged(fuse_attention_prologue,
                   kInputs + "  state %ko: bf16[4,1,16,32]\n  state %vo: bf16[4,1,16,32]\n" +
                       kWrite +
                       "  %o: bf16[T,64] = attention(%q1, %ko, %vo, %pages, %lens, %starts) "
                       "{scale=0.125}\n" +
                       kOutput);
}

TEST(FuseAttentionPrologue, LeavesAttentionWhoseQueriesComeFromElsewhere) {
  expect_unchanged(fuse_attention_prologue,
                   kInputs + kWrite + "  %s: bf16[T,64] = silu(%q1)\n" +
                       "  %o: bf16[T,64] = attention(%s, %kc1, %vc1, %pages, %lens, %starts) "
                       "{scale=0.125}\n" +
                       kOutput);
}

}  // namespace
}  // namespace encore::passes
