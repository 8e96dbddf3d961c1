#include "text/output_text.h"

#include <gtest/gtest.h>

#include "base/source_dir.h"

namespace encore::text {
namespace {

class OutputTextTest : public ::testing::Test {
 protected:
  // Pushes the ids one at a time, and returns the text that is shown.
  std::string run(const std::vector<int32_t>& ids, StopRules rules) {
    output_.emplace(tokenizer_, std::vector<int32_t>{}, std::move(rules));
    std::string shown;
    for (const int32_t id : ids)
      shown += output_->push(std::vector{id});
    return shown + output_->finish();
  }
  std::vector<int32_t> ids(const std::string& text) const { return tokenizer_.encode(text, false); }
  std::vector<int32_t> ended(const std::string& text) const {
    std::vector<int32_t> all = ids(text);
    all.push_back(end_);
    return all;
  }

  Tokenizer tokenizer_ =
      Tokenizer::load(std::filesystem::path(ENCORE_SOURCE_DIR) / "models" / "stories");
  int32_t end_ = *tokenizer_.eos_id();
  std::optional<OutputText> output_;
};

TEST_F(OutputTextTest, ShowsTheWholeTextWhereNothingEndsIt) {
  EXPECT_EQ(run(ids("Once upon a time, \u00e4\u4e2d"), {}), "Once upon a time, \u00e4\u4e2d");
  EXPECT_FALSE(output_->is_stopped());
}

TEST_F(OutputTextTest, AnEndTokenOfTheModelEndsItWithoutAReason) {
  std::vector<int32_t> all = ended("The end.");
  all.push_back(all[0]);
  EXPECT_EQ(run(all, {.end_tokens = {end_}}), "The end.");
  EXPECT_TRUE(output_->is_stopped());
  EXPECT_EQ(output_->num_tokens(), std::ssize(all) - 1);
  EXPECT_EQ(output_->stop_reason().index(), 0U);
}

TEST_F(OutputTextTest, AnIgnoredEndTokenIsPassedOver) {
  std::vector<int32_t> all = ended("One.");
  for (const int32_t id : ids(" Two."))
    all.push_back(id);
  EXPECT_EQ(run(all, {}), "One. Two.");
  EXPECT_EQ(run(all, {.skip_special_tokens = false}), "One.<|end_of_text|> Two.");
}

TEST_F(OutputTextTest, ShowsASpecialTokenThatMarksAPart) {
  std::vector<int32_t> all = ended("One.");
  all.push_back(*tokenizer_.bos_id());
  ASSERT_NE(end_, *tokenizer_.bos_id());
  EXPECT_EQ(run(all, {.shown_tokens = {end_}}), "One.<|end_of_text|>");
  output_.emplace(tokenizer_, all, StopRules{.shown_tokens = {end_}});
  EXPECT_EQ(output_->push(std::vector{end_}), "<|end_of_text|>");
}

TEST_F(OutputTextTest, AStopStringAcrossTokensEndsItAndNothingOfItIsShown) {
  const std::vector<int32_t> all = ids("One day there was a dog. The dog ran.");
  ASSERT_GT(ids("was a dog.").size(), 2U);
  EXPECT_EQ(run(all, {.strings = {"was a dog."}}), "One day there ");
  EXPECT_EQ(std::get<std::string>(output_->stop_reason()), "was a dog.");
  EXPECT_LT(output_->num_tokens(), std::ssize(all));
  EXPECT_EQ(run(all, {.strings = {"was a dog."}, .include_in_output = true}),
            "One day there was a dog.");
}

TEST_F(OutputTextTest, AStopTokenOfTheRequestEndsItAndIsTheReason) {
  const std::vector<int32_t> all = ids("One day there was");
  EXPECT_EQ(run(all, {.tokens = {all[1]}}), tokenizer_.decode(std::vector{all[0]}));
  EXPECT_EQ(std::get<int32_t>(output_->stop_reason()), all[1]);
  EXPECT_EQ(run(all, {.tokens = {all[1]}, .include_in_output = true}),
            tokenizer_.decode(std::vector{all[0], all[1]}));
}

TEST_F(OutputTextTest, NothingEndsItWithinTheFirstTokens) {
  std::vector<int32_t> all = ended("a dog");
  const int64_t early = std::ssize(all);
  for (const int32_t id : ended(" and a dog too"))
    all.push_back(id);
  EXPECT_EQ(run(all, {.strings = {"a dog"}, .end_tokens = {end_}, .min_tokens = early}),
            "a dog and ");
  EXPECT_EQ(run(all, {.end_tokens = {end_}, .min_tokens = early - 1}), "a dog");
}

TEST_F(OutputTextTest, TheStartOfAStopStringIsShownWhenTheTextEndsOtherwise) {
  EXPECT_EQ(run(ended("a dog ran"), {.strings = {"ran away"}, .end_tokens = {end_}}), "a dog ran");
  EXPECT_EQ(run(ids("a dog ran"), {.strings = {"ran away"}}), "a dog ran");
}

}  // namespace
}  // namespace encore::text
