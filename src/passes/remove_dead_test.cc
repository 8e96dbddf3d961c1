#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

TEST(RemoveDead, DropsANodeThatNothingUses) {
  expect_rewrite(remove_dead,
                 R"(
  input %x: bf16[T,64]
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,64] = silu(%x)
  output %b
)",
                 R"(
  input %x: bf16[T,64]
  %b: bf16[T,64] = silu(%x)
  output %b
)");
}

TEST(RemoveDead, DropsChainsAndTheWeightsOnlyTheyRead) {
  expect_rewrite(remove_dead,
                 R"(
  input %x: bf16[T,64]
  weight %w: bf16[32,64] = "w"
  weight %live: bf16[32,64] = "live"
  %a: bf16[T,64] = silu(%x)
  %b: bf16[T,32] = linear(%a, %w)
  %c: bf16[T,32] = silu(%b)
  %d: bf16[T,32] = linear(%x, %live)
  output %d
)",
                 R"(
  input %x: bf16[T,64]
  weight %live: bf16[32,64] = "live"
  %d: bf16[T,32] = linear(%x, %live)
  output %d
)");
}

TEST(RemoveDead, KeepsAWriteIntoAStateAndWhatItNeeds) {
  expect_unchanged(remove_dead, R"(
  input %k: bf16[T,64]
  input %slots: i32[T] pad -1
  state %kc: bf16[4,2,16,32]
  state %vc: bf16[4,2,16,32]
  %k1: bf16[T,64] = silu(%k)
  %kc1: bf16[4,2,16,32], %vc1: bf16[4,2,16,32] = kv_write(%kc, %vc, %k1, %k, %slots)
)");
}

TEST(RemoveDead, KeepsANodeOfWhichOneOutputIsUsed) {
  expect_unchanged(remove_dead, R"(
  input %x: bf16[T,64]
  weight %w: bf16[64,64] = "w"
  %a: bf16[T,64] = linear(%x, %w)
  %b: bf16[T,16], %c: bf16[T,48] = split(%a) {sizes=[16,48]}
  output %c
)");
}

TEST(RemoveDead, KeepsStepInputsAndStatesThatNothingReads) {
  expect_unchanged(remove_dead, R"(
  input %x: bf16[T,64]
  input %unread: i32[B]
  state %s: bf16[4,64]
  %a: bf16[T,64] = silu(%x)
  output %a
)");
}

}  // namespace
}  // namespace encore::passes
