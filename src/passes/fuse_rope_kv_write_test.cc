#include "passes/testing/attention_inputs.h"
#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

const std::string kNorms = "  weight %qn: bf16[32] = \"qn\"\n  weight %kn: bf16[32] = \"kn\"\n";
const std::string kKvWrite =
    "  %kc1: bf16[4,1,16,32], %vc1: bf16[4,1,16,32] = kv_write(%kc, %vc, %k1, %v, %slots)\n";
const std::string kAttentionOutput =
    "  %o: bf16[T,64] = attention(%q1, %kc1, %vc1, %pages, %lens, %starts) {scale=0.125}\n"
    "  output %o\n";
const std::string kFusedOutputs =
    "  %q1: bf16[T,64], %kc1: bf16[4,1,16,32], %vc1: bf16[4,1,16,32] = ";
const std::string kRopes =
    "  %q1: bf16[T,64] = rope(%q, %pos, %f)\n  %k1: bf16[T,32] = rope(%k, %pos, %f)\n";

TEST(FuseRopeKvWrite, RotatesAndWritesInOneNode) {
  expect_rewrite(fuse_rope_kv_write, kInputs + kRopes + kKvWrite + kAttentionOutput,
                 kInputs + kFusedOutputs +
                     "rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc)\n" + kAttentionOutput);
}

TEST(FuseRopeKvWrite, TakesANormPerHeadIn) {
  expect_rewrite(fuse_rope_kv_write, kInputs + kNorms + R"(
  %qh: bf16[T,64] = rms_norm(%q, %qn) {eps=1e-06}
  %q1: bf16[T,64] = rope(%qh, %pos, %f)
  %kh: bf16[T,32] = rms_norm(%k, %kn) {eps=1e-06}
  %k1: bf16[T,32] = rope(%kh, %pos, %f)
)" + kKvWrite + kAttentionOutput,
                 kInputs + kNorms + kFusedOutputs +
                     "rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc, q_norm=%qn, "
                     "k_norm=%kn) {eps=1e-06}\n" +
                     kAttentionOutput);
}

TEST(FuseRopeKvWrite, LeavesTheNormOfOneOfTwoInFront) {
  const std::string norm = "  %qh: bf16[T,64] = rms_norm(%q, %qn) {eps=1e-06}\n";
  const std::string weight = "  weight %qn: bf16[32] = \"qn\"\n";
  expect_rewrite(fuse_rope_kv_write, kInputs + weight + norm + R"(
  %q1: bf16[T,64] = rope(%qh, %pos, %f)
  %k1: bf16[T,32] = rope(%k, %pos, %f)
)" + kKvWrite + kAttentionOutput,
                 kInputs + weight + norm + kFusedOutputs +
                     "rope_kv_write(%qh, %k, %v, %pos, %f, %slots, %kc, %vc)\n" + kAttentionOutput);
}

TEST(FuseRopeKvWrite, LeavesNormsOfDifferentEpsInFront) {
  const std::string norms =
      "  %qh: bf16[T,64] = rms_norm(%q, %qn) {eps=1e-06}\n"
      "  %kh: bf16[T,32] = rms_norm(%k, %kn) {eps=1e-05}\n";
  expect_rewrite(fuse_rope_kv_write, kInputs + kNorms + norms + R"(
  %q1: bf16[T,64] = rope(%qh, %pos, %f)
  %k1: bf16[T,32] = rope(%kh, %pos, %f)
)" + kKvWrite + kAttentionOutput,
                 kInputs + kNorms + norms + kFusedOutputs +
                     "rope_kv_write(%qh, %kh, %v, %pos, %f, %slots, %kc, %vc)\n" +
                     kAttentionOutput);
}

TEST(FuseRopeKvWrite, LeavesANormThatAnotherNodeReadsInFront) {
  const std::string norms =
      "  %qh: bf16[T,64] = rms_norm(%q, %qn) {eps=1e-06}\n"
      "  %kh: bf16[T,32] = rms_norm(%k, %kn) {eps=1e-06}\n";
  expect_rewrite(fuse_rope_kv_write, kInputs + kNorms + norms + R"(
  %q1: bf16[T,64] = rope(%qh, %pos, %f)
  %k1: bf16[T,32] = rope(%kh, %pos, %f)
)" + kKvWrite + kAttentionOutput + "  output %kh\n",
                 kInputs + kNorms + norms + kFusedOutputs +
                     "rope_kv_write(%qh, %kh, %v, %pos, %f, %slots, %kc, %vc)\n" +
                     kAttentionOutput + "  output %kh\n");
}

// OLMo 2 normalizes the whole row instead of each head: the norms' weights have 64 and 32 elements,
// but a head has 32.
TEST(FuseRopeKvWrite, LeavesANormOfTheWholeRowInFront) {
  const std::string weights = "  weight %qn: bf16[64] = \"qn\"\n  weight %kn: bf16[32] = \"kn\"\n";
  const std::string norms =
      "  %qh: bf16[T,64] = rms_norm(%q, %qn) {eps=1e-06}\n"
      "  %kh: bf16[T,32] = rms_norm(%k, %kn) {eps=1e-06}\n";
  expect_rewrite(fuse_rope_kv_write, kInputs + weights + norms + R"(
  %q1: bf16[T,64] = rope(%qh, %pos, %f)
  %k1: bf16[T,32] = rope(%kh, %pos, %f)
)" + kKvWrite + kAttentionOutput,
                 kInputs + weights + norms + kFusedOutputs +
                     "rope_kv_write(%qh, %kh, %v, %pos, %f, %slots, %kc, %vc)\n" +
                     kAttentionOutput);
}

TEST(FuseRopeKvWrite, LeavesRotatedKeysThatAnotherNodeReads) {
  expect_unchanged(fuse_rope_kv_write, kInputs + kRopes + kKvWrite + R"(
  %x: bf16[T,32] = silu(%k1)
  output %x
)" + kAttentionOutput);
}

TEST(FuseRopeKvWrite, LeavesRotatedKeysThatAreAGraphOutput) {
  expect_unchanged(fuse_rope_kv_write,
                   kInputs + kRopes + kKvWrite + kAttentionOutput + "  output %k1\n");
}

TEST(FuseRopeKvWrite, LeavesKeysThatAreNotRotated) {
  expect_unchanged(fuse_rope_kv_write, kInputs + R"(
  %q1: bf16[T,64] = rope(%q, %pos, %f)
  %k1: bf16[T,32] = silu(%k)
)" + kKvWrite + kAttentionOutput);
}

TEST(FuseRopeKvWrite, LeavesQueriesThatAreNotRotated) {
  expect_unchanged(fuse_rope_kv_write, kInputs + R"(
  %q1: bf16[T,64] = silu(%q)
  %k1: bf16[T,32] = rope(%k, %pos, %f)
)" + kKvWrite + kAttentionOutput);
}

TEST(FuseRopeKvWrite, LeavesRopesWithDifferentPositions) {
  expect_unchanged(fuse_rope_kv_write, kInputs + R"(
  input %pos2: i32[T]
  %q1: bf16[T,64] = rope(%q, %pos, %f)
  %k1: bf16[T,32] = rope(%k, %pos2, %f)
)" + kKvWrite + kAttentionOutput);
}

TEST(FuseRopeKvWrite, LeavesRopesWithDifferentFrequencies) {
  expect_unchanged(fuse_rope_kv_write, kInputs + R"(
  weight %f2: f32[16] = "f2"
  %q1: bf16[T,64] = rope(%q, %pos, %f2)
  %k1: bf16[T,32] = rope(%k, %pos, %f)
)" + kKvWrite + kAttentionOutput);
}

// This rope rotates half of a head, but the fused op rotates whole heads of the cache.
TEST(FuseRopeKvWrite, LeavesARopeThatIsNarrowerThanAHead) {
  std::string inputs = kInputs;
  inputs.replace(inputs.find("f32[16]"), 7, "f32[8]");
  expect_unchanged(fuse_rope_kv_write, inputs + kRopes + kKvWrite + kAttentionOutput);
}

TEST(FuseRopeKvWrite, LeavesACacheThatNoAttentionReads) {
  expect_unchanged(fuse_rope_kv_write, kInputs + kRopes + kKvWrite + "  output %q1\n");
}

// The fused node would stand at the place of the cache write, which is behind a reader of the
// queries.
TEST(FuseRopeKvWrite, LeavesQueriesThatAreReadBeforeTheCacheIsWritten) {
  expect_unchanged(fuse_rope_kv_write, kInputs + R"(
  %q1: bf16[T,64] = rope(%q, %pos, %f)
  %early: bf16[T,64] = silu(%q1)
  %k1: bf16[T,32] = rope(%k, %pos, %f)
)" + kKvWrite + kAttentionOutput + "  output %early\n");
}

// The queries are made after the cache write, so no place is left for the fused node.
TEST(FuseRopeKvWrite, LeavesQueriesThatAreMadeAfterTheCacheIsWritten) {
  expect_unchanged(fuse_rope_kv_write,
                   kInputs + "  %k1: bf16[T,32] = rope(%k, %pos, %f)\n" + kKvWrite + R"(
  %late: bf16[T,64] = silu(%q)
  %q1: bf16[T,64] = rope(%late, %pos, %f)
)" + kAttentionOutput);
}

TEST(FuseRopeKvWrite, FusesARopeOfQueriesThatComesAfterTheCacheWrite) {
  expect_rewrite(fuse_rope_kv_write,
                 kInputs + "  %k1: bf16[T,32] = rope(%k, %pos, %f)\n" + kKvWrite +
                     "  %q1: bf16[T,64] = rope(%q, %pos, %f)\n" + kAttentionOutput,
                 kInputs + kFusedOutputs +
                     "rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc)\n" + kAttentionOutput);
}

}  // namespace
}  // namespace encore::passes
