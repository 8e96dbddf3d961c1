#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "text/tokenizer.h"

namespace encore::text {
namespace {

using Tokens = std::vector<int32_t>;

// The tokenizer.json of the tests: a vocabulary of letters and a word, and one added token.
constexpr const char* kLetters = R"({
    "added_tokens": [{"id": 3, "content": "</s>", "special": true, "normalized": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, " ": 1, "<x>": 2, "</s>": 3}, "merges": []}})";

class TokenFilesTest : public ::testing::Test {
 protected:
  TokenFilesTest() { dir_.write("tokenizer.json", kLetters); }
  // Encodes a text with the files that the test has written, and keeps the warnings.
  Tokens ids(std::string_view text) {
    testing::internal::CaptureStderr();
    const Tokenizer tokenizer = Tokenizer::load(dir_.path());
    warnings_ = testing::internal::GetCapturedStderr();
    return tokenizer.encode(text, false);
  }

  TempDir dir_;
  std::string warnings_;
};

TEST_F(TokenFilesTest, TakesTokensOfTheDecoder) {
  dir_.write("tokenizer_config.json",
             R"({"added_tokens_decoder": {"4": {"content": "<|user|>", "special": true},
                                          "9": {"content": "<x>", "rstrip": true}}})");
  EXPECT_EQ(ids("a<|user|>a<x> a"), (Tokens{0, 4, 0, 2, 0}));
  EXPECT_EQ(warnings_, "");
  EXPECT_EQ(Tokenizer::load(dir_.path()).decode(Tokens{0, 4}), "a");
}

TEST_F(TokenFilesTest, TakesFlagsOfTheDecoder) {
  EXPECT_EQ(ids("a</s> a"), (Tokens{0, 3, 1, 0}));
  dir_.write("tokenizer_config.json",
             R"({"added_tokens_decoder": {"3": {"content": "</s>", "special": false,
                                                "rstrip": true}}})");
  EXPECT_EQ(ids("a</s> a"), (Tokens{0, 3, 0}));
  EXPECT_EQ(Tokenizer::load(dir_.path()).decode(Tokens{0, 3}), "a </s>");
}

TEST_F(TokenFilesTest, TakesTokensOfAddedTokensJsonWhereThereIsNoDecoder) {
  dir_.write("added_tokens.json", R"({"<|user|>": 4, "</s>": 3})");
  EXPECT_EQ(ids("a<|user|>"), (Tokens{0, 4}));
  EXPECT_FALSE(Tokenizer::load(dir_.path()).is_special(4));
  EXPECT_TRUE(Tokenizer::load(dir_.path()).is_special(3));
  dir_.write("special_tokens_map.json", R"({"additional_special_tokens": ["<|user|>"]})");
  EXPECT_TRUE(Tokenizer::load(dir_.path()).is_special(4));
}

TEST_F(TokenFilesTest, TakesSpecialTokensThatTheVocabularyHas) {
  dir_.write("special_tokens_map.json",
             R"({"eos_token": {"content": "</s>"}, "additional_special_tokens": [
                 {"content": "<x>", "lstrip": true}]})");
  EXPECT_EQ(ids("a <x>"), (Tokens{0, 2}));
  EXPECT_EQ(warnings_, "");
  const Tokenizer tokenizer = Tokenizer::load(dir_.path());
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_EQ(tokenizer.eos_id(), 3);
}

TEST_F(TokenFilesTest, WarnsOfWhatItCannotHave) {
  dir_.write("tokenizer_config.json",
             R"({"pad_token": "[PAD]", "added_tokens_decoder": {"0": {"content": "<|user|>"}}})");
  ids("a");
  EXPECT_NE(warnings_.find("'<|user|>' has id 0, which is another token's"), std::string::npos);
  EXPECT_NE(warnings_.find("[PAD] are not in the vocabulary"), std::string::npos) << warnings_;
}

}  // namespace
}  // namespace encore::text
