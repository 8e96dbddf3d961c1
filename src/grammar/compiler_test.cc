#include "grammar/compiler.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/source_dir.h"

namespace encore::grammar {
namespace {

Vocabulary stories() {
  const text::Tokenizer tokenizer = text::Tokenizer::load(ENCORE_SOURCE_DIR "/models/stories");
  const int32_t end = *tokenizer.eos_id();
  return Vocabulary(tokenizer, tokenizer.vocab_size(), {&end, 1});
}

Source choice(int number) {
  return {.kind = SourceKind::kChoice, .choices = {fmt::format("choice {}", number)}};
}

bool is_invalid(const Compiler::Result& result) {
  const auto* const refusal = std::get_if<Refusal>(&result);
  return refusal != nullptr && refusal->kind == Refusal::Kind::kInvalid;
}

TEST(Compiler, CompilesASourceOnceForAllWhoAsk) {
  Compiler compiler(stories);
  std::atomic<int> num_grammars = 0;
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&, i] {
      if (std::holds_alternative<Grammar>(compiler.compile(choice(i % 2)))) ++num_grammars;
    });
  }
  for (std::thread& asker : askers)
    asker.join();
  EXPECT_EQ(num_grammars, 8);
  EXPECT_EQ(compiler.num_compiled(), 2);
}

TEST(Compiler, ForgetsTheSourcesThatWereUsedLongestAgo) {
  int64_t one = 0;
  {
    Compiler compiler(stories);
    EXPECT_TRUE(std::holds_alternative<Grammar>(compiler.compile(choice(0))));
    one = compiler.cache_bytes();
  }
  ASSERT_GT(one, 0);
  Compiler compiler(stories, {.num_threads = 1, .max_cache_bytes = 5 * one / 2});
  const auto ask = [&](int number) {
    const int64_t before = compiler.num_compiled();
    EXPECT_TRUE(std::holds_alternative<Grammar>(compiler.compile(choice(number))));
    return compiler.num_compiled() > before;
  };
  EXPECT_TRUE(ask(0));
  EXPECT_TRUE(ask(1));
  EXPECT_FALSE(ask(0));
  EXPECT_TRUE(ask(2));  // replaces source 1 in the cache
  EXPECT_FALSE(ask(0));
  EXPECT_TRUE(ask(1));
  EXPECT_LE(compiler.cache_bytes(), 5 * one / 2);
}

TEST(Compiler, SaysWhatIsWrongAndKeepsNothingOfIt) {
  Compiler compiler(stories);
  EXPECT_TRUE(is_invalid(compiler.compile({.kind = SourceKind::kJsonSchema, .text = "[]"})));
  EXPECT_TRUE(is_invalid(compiler.compile({.kind = SourceKind::kRegex, .text = "a("})));
  EXPECT_TRUE(
      is_invalid(compiler.compile({.kind = SourceKind::kEbnf, .text = "root ::= missing"})));
  const Source endless = {.kind = SourceKind::kJsonSchema, .text = R"({"$ref": "#"})"};
  EXPECT_TRUE(is_invalid(compiler.compile(endless)));
  EXPECT_EQ(compiler.cache_bytes(), 0);
}

TEST(Compiler, SaysWhyAVocabularyHasNoGrammarsAndReadsItOnce) {
  int num_read = 0;
  Compiler compiler([&]() -> Vocabulary {
    ++num_read;
    fail(ErrorKind::kUnsupported, "no tokenizer");
  });
  for (int i = 0; i < 2; ++i) {
    const auto refusal = std::get<Refusal>(compiler.compile(choice(i)));
    EXPECT_EQ(refusal.kind, Refusal::Kind::kUnsupported);
    EXPECT_EQ(refusal.why, "no tokenizer");
  }
  EXPECT_EQ(num_read, 1);
}

TEST(Compiler, LetsFewWaitAndNoneForEver) {
  Compiler compiler(stories, {.num_threads = 0, .max_waiting = 1, .timeout = {}});
  EXPECT_NE(std::get<Refusal>(compiler.compile(choice(0))).why.find("after 0 ms"),
            std::string::npos);
  EXPECT_NE(std::get<Refusal>(compiler.compile(choice(1))).why.find("too many"), std::string::npos);
}

}  // namespace
}  // namespace encore::grammar
