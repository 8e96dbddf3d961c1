#include "planning/draft_list.h"

#include <gtest/gtest.h>

#include "loader/loaded_model.h"
#include "model/source.h"

namespace encore::planning {
namespace {

constexpr int64_t kBatches[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr int64_t kShort = 64;  // tokens that each sequence has
constexpr int64_t kLong = 1024;
constexpr Rates kH100{.bytes_per_s = 3.0e12, .flops_per_s = 690e12};

passes::Program program(const char* draft) {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 2048,
                    .max_batch_size = 256,
                    .max_seq_len = 2048,
                    .num_drafts = 4,
                    .fewer_drafts = {1, 2}};
  if (draft != nullptr) options.draft = model::find_model(draft);
  return loader::compile_model(model::find_model("synthetic:llama-3.1-8b"), options, 64);
}

class DraftListOfAnEightB : public ::testing::Test {
 protected:
  static DraftList choose(const passes::Program& program, const Rates& rates,
                          int64_t context = kShort) {
    return choose_draft_list(program, kBatches, context, rates);
  }
  const passes::Program looked_up_ = program(nullptr);
};

TEST_F(DraftListOfAnEightB, EndsWhereStepsComputeMoreThanTheyRead) {
  const DraftList list = choose(looked_up_, kH100);
  ASSERT_FALSE(list.counts.empty());
  EXPECT_EQ(list.counts.back(), 4);
  EXPECT_LE(list.counts.size(), 3U);
  EXPECT_GE(list.max_sequences, 32);
  EXPECT_LT(list.max_sequences, 256);
  EXPECT_LT(list.cost, 1.1) << "one sequence reads the weights once, with and without drafts";
  EXPECT_NEAR(list.tokens, 1 + 0.9 + 0.81 + 0.729 + 0.6561, 1e-9);
}

TEST_F(DraftListOfAnEightB, ReachesFartherWhereSequencesAreLong) {
  EXPECT_GT(choose(looked_up_, kH100, kLong).max_sequences, choose(looked_up_, kH100).max_sequences)
      << "K and V are read once, however many tokens look at them";
}

TEST_F(DraftListOfAnEightB, IsEmptyWhereEachTokenCostsAsMuchAsAStep) {
  const DraftList list = choose(looked_up_, {.bytes_per_s = 3.0e12, .flops_per_s = 1e10});
  EXPECT_TRUE(list.counts.empty());
  EXPECT_EQ(list.max_sequences, 0);
  EXPECT_EQ(to_text(list).rfind("guesses: none", 0), 0U);
}

// The draft model has half the model's size.
TEST_F(DraftListOfAnEightB, CountsWhatADraftModelReads) {
  const passes::Program drafting = program("synthetic:llama-3.1-8b-draft");
  const double with_model = drafting_seconds(drafting, 1, 4, kShort, kH100);
  const double without = drafting_seconds(looked_up_, 1, 4, kShort, kH100);
  EXPECT_GT(with_model, 1.1 * without);
  EXPECT_NEAR(drafting_seconds(drafting, 1, 0, kShort, kH100),
              drafting_seconds(looked_up_, 1, 0, kShort, kH100), 0.01 * without)
      << "a step that guesses nothing is that of a start without a draft model";
  const DraftList list = choose(drafting, kH100);
  EXPECT_FALSE(list.counts.empty());
  EXPECT_LE(list.max_sequences, choose(looked_up_, kH100).max_sequences);
  EXPECT_GT(list.cost, 1.1);
}

TEST_F(DraftListOfAnEightB, IsNamedWithItsReason) {
  const std::string text = to_text(DraftList{
      .counts = {1, 2, 4}, .max_sequences = 64, .considered = 4, .cost = 1.214, .tokens = 4.1});
  EXPECT_EQ(
      text,
      "guesses: 1, 2, 4 or none, in batches of up to 64: by bytes and operations, a step of one "
      "sequence takes 1.21 x as long with 4, and gives 4.10 tokens where 9 guesses in 10 are "
      "right");
}

}  // namespace
}  // namespace encore::planning
