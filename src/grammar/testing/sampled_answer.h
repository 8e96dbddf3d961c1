// Samples random answers from a grammar's masks, for tests: each answer must fit the source of the
// grammar.
#pragma once

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/source_dir.h"
#include "grammar/grammar.h"

namespace encore::grammar::testing {

struct Model {
  explicit Model(const std::string& folder)
      : Model(text::Tokenizer::load(std::string(ENCORE_SOURCE_DIR) + folder)) {}
  explicit Model(text::Tokenizer loaded)
      : tokenizer(std::move(loaded)),
        end(tokenizer.eos_id().value_or(tokenizer.vocab_size())),
        vocabulary(tokenizer, tokenizer.vocab_size() + 7, {&end, 1}) {}

  text::Tokenizer tokenizer;
  int32_t end;  // the end token; beyond the tokenizer's ids if it names none
  Vocabulary vocabulary;
};

inline Grammar compiled(const Model& model, const Source& source) {
  auto result = Grammar::compile(model.vocabulary, source);
  if (const auto* const why = std::get_if<std::string>(&result)) ADD_FAILURE() << *why;
  return std::get<Grammar>(std::move(result));
}

inline std::vector<int32_t> tokens_of(const std::vector<uint32_t>& mask) {
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < std::ssize(mask) * 32; ++t) {
    if ((mask[t / 32] >> (t % 32) & 1U) != 0) tokens.push_back(static_cast<int32_t>(t));
  }
  return tokens;
}

inline std::vector<int32_t> allowed(const Model& model, Matcher& matcher) {
  std::vector<uint32_t> mask(model.vocabulary.num_mask_words(), 0xdeadbeef);
  matcher.fill(mask);
  return tokens_of(mask);
}

struct Answer {
  std::string text;
  bool is_whole = false;
};

using Clock = std::chrono::steady_clock;

// Returns an answer whose tokens are drawn uniformly from the allowed ones, except that where the
// answer may end, it ends with probability 1/2. `fill_times` receives the time that each mask took;
// it may be null.
inline Answer sample(const Model& model, const Grammar& grammar, uint64_t seed, int64_t max_tokens,
                     std::vector<Clock::duration>* fill_times = nullptr) {
  std::mt19937_64 random(seed);
  Matcher matcher = grammar.matcher();
  Answer answer;
  for (int64_t i = 0; i < max_tokens; ++i) {
    std::vector<uint32_t> mask(model.vocabulary.num_mask_words(), 0xdeadbeef);
    const auto start = Clock::now();
    matcher.fill(mask);
    if (fill_times != nullptr) fill_times->push_back(Clock::now() - start);
    const std::vector<int32_t> tokens = tokens_of(mask);
    EXPECT_FALSE(tokens.empty()) << "no way on from: " << answer.text;
    if (tokens.empty()) return answer;
    int32_t token = tokens[random() % tokens.size()];
    if (matcher.is_complete() && random() % 2 == 0) token = model.end;
    EXPECT_TRUE(matcher.accept(token)) << token << " behind " << answer.text;
    if (token == model.end) {
      answer.is_whole = matcher.has_ended();
      return answer;
    }
    EXPECT_LT(token, model.tokenizer.vocab_size());
    answer.text += model.tokenizer.is_special(token) ? std::string(*model.tokenizer.token(token))
                                                     : model.tokenizer.token_bytes(token);
  }
  return answer;
}

// Runs a test with each tokenizer of tokenizers().
class OfAModel : public ::testing::TestWithParam<const char*> {
 protected:
  Model model{GetParam()};
};

inline auto tokenizers() {
  return ::testing::Values("/models/stories", "/tests/tokenizers/llama3", "/tests/tokenizers/spm");
}

inline std::string tokenizer_name(const ::testing::TestParamInfo<const char*>& info) {
  const std::string path = info.param;
  return path.substr(path.rfind('/') + 1);
}

}  // namespace encore::grammar::testing
