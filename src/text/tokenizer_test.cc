#include "text/tokenizer.h"

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/source_dir.h"
#include "base/testing/temp_dir.h"
#include "base/testing/thorough.h"
#include "text/unicode.h"

namespace encore::text {
namespace {

using Ids = std::vector<int32_t>;

struct Case {
  std::string text;
  Ids ids;
  std::string decoded;
};

std::filesystem::path golden(const std::string& style) {
  return std::filesystem::path(ENCORE_SOURCE_DIR) / "tests" / "tokenizers" / style;
}

std::vector<Case> read_cases(const std::string& style) {
  std::ifstream file(golden(style) / "cases.jsonl");
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    const json::value value = json::parse(line, style);
    const json::Object object(value, style);
    Case item{object.string_at("text"), {}, object.string_at("decoded")};
    for (const json::value& id : object.at("ids").as_array()) {
      item.ids.push_back(static_cast<int32_t>(id.as_int64()));
    }
    cases.push_back(std::move(item));
  }
  return cases;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, const Ids& context = {}) {
  Detokenizer detokenizer(tokenizer, context);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  return text + detokenizer.finish();
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, AgreesWithThePackageOnEveryLine) {
  const Tokenizer tokenizer = Tokenizer::load(golden(GetParam()));
  const std::vector<Case> cases = read_cases(GetParam());
  ASSERT_GE(cases.size(), 200U);
  for (const Case& item : cases) {
    EXPECT_EQ(tokenizer.encode(item.text), item.ids) << testing::PrintToString(item.text);
    EXPECT_EQ(tokenizer.decode(item.ids), item.decoded);
    EXPECT_EQ(streamed(tokenizer, item.ids), item.decoded);
  }
}

TEST_P(Golden, StreamsExactlyWhatItDecodesForAnyIds) {
  const Tokenizer tokenizer = Tokenizer::load(golden(GetParam()));
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    Ids ids;
    // Half of the draws take only ids below 300, most of which are single bytes. Such draws often
    // end within a character, or have the later bytes of a character without its first.
    const int32_t limit = i % 2 == 0 ? 300 : tokenizer.vocab_size() + 5;
    for (size_t n = random() % 12; n > 0; --n) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(limit)));
    }
    ASSERT_EQ(streamed(tokenizer, ids), tokenizer.decode(ids));
  }
}

TEST_P(Golden, ContinuesAContextAsIfItHadStreamedAll) {
  const Tokenizer tokenizer = Tokenizer::load(golden(GetParam()));
  int num_continued = 0;
  for (const Case& item : read_cases(GetParam())) {
    for (auto split = item.ids.begin(); split < item.ids.end(); split += 3) {
      const Ids context(item.ids.begin(), split);
      const std::string before = tokenizer.decode(context);
      if (!item.decoded.starts_with(before)) continue;  // the context ends within a character
      ASSERT_EQ(before + streamed(tokenizer, {split, item.ids.end()}, context), item.decoded);
      ++num_continued;
    }
  }
  EXPECT_GT(num_continued, 1000);
}

TEST(Detokenizer, CompletesTheCharacterThatItsContextBegins) {
  const Tokenizer tokenizer = Tokenizer::load(golden("spm"));
  const auto byte = [&](const char* token) { return tokenizer.token_id(token).value(); };
  const Ids begun = {byte("<0xC3>")};
  EXPECT_EQ(streamed(tokenizer, {byte("<0xA9>")}, begun), "\u00e9");
  EXPECT_EQ(streamed(tokenizer, {}, begun), "");
  const Ids whole = {byte("<0xC3>"), byte("<0xA9>")};
  EXPECT_EQ(streamed(tokenizer, {byte("<0x41>")}, whole), "A");
  EXPECT_EQ(streamed(tokenizer, {byte("<0xFF>")}, whole), "\ufffd\ufffd\ufffd");
}

TEST_P(Golden, ReadsAMegabyteWithoutASpaceQuickly) {
  const Tokenizer tokenizer = Tokenizer::load(golden(GetParam()));
  for (const char* unit : {"a", "=", "\n", "1", "\u4e16", "e\u0301", "the"}) {
    std::string text;
    while (text.size() < (is_thorough() ? 1 << 20 : 1 << 18))
      text += unit;
    const std::clock_t start = std::clock();
    const Ids ids = tokenizer.encode(text, false);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 100) << unit;  // a quadratic pass takes longer on any machine
    EXPECT_EQ(tokenizer.decode(ids).size(),
              std::string_view(unit) == "e\u0301" && std::string_view(GetParam()) == "qwen2"
                  ? text.size() / 3 * 2
                  : text.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, Golden, testing::Values("llama3", "qwen2", "spm"));

TEST(Tokenizer, AddsTheBeginTokenOnlyWhenAsked) {
  const Tokenizer tokenizer = Tokenizer::load(golden("llama3") / "tokenizer.json");
  const int32_t bos = tokenizer.token_id("<|begin_of_text|>").value();
  EXPECT_EQ(tokenizer.encode("").size(), 1U);
  EXPECT_EQ(tokenizer.encode("a").front(), bos);
  EXPECT_NE(tokenizer.encode("a", false).front(), bos);
  EXPECT_TRUE(tokenizer.is_special(bos));
  EXPECT_EQ(tokenizer.token(bos), "<|begin_of_text|>");
  EXPECT_EQ(tokenizer.decode(Ids{bos}), "");
  EXPECT_EQ(tokenizer.decode(Ids{bos}, false), "<|begin_of_text|>");
  EXPECT_EQ(tokenizer.token(tokenizer.vocab_size()), std::nullopt);
  EXPECT_EQ(tokenizer.token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.token_id("no such token"), std::nullopt);
}

TEST(Tokenizer, ReadsInvalidBytesAsReplacementCharacters) {
  const Tokenizer tokenizer = Tokenizer::load(golden("llama3"));
  EXPECT_EQ(tokenizer.encode("a\xff"
                             "b"),
            tokenizer.encode("a\xef\xbf\xbd"
                             "b"));
}

TEST(Tokenizer, GivesManyThreadsTheSameTokens) {
  const Tokenizer tokenizer = Tokenizer::load(golden("spm"));
  const std::vector<Case> cases = read_cases("spm");
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<int> num_wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const Case& item : cases) {
        if (tokenizer.encode(item.text) != item.ids) ++num_wrong;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(num_wrong, 0);
}

constexpr const char* kTiny = R"({"added_tokens":[{"id":2,"content":"<s>","special":true},
    {"id":3,"content":"</s>","special":true}],
    "model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";

TEST(Tokenizer, ReadsBeginAndEndTokensFromTheConfig) {
  const TempDir directory;
  directory.write("tokenizer.json", kTiny);
  directory.write("tokenizer_config.json", R"({"bos_token":{"content":"<s>"},"eos_token":"</s>"})");
  const Tokenizer tokenizer = Tokenizer::load(directory.path());
  EXPECT_EQ(tokenizer.bos_id(), 2);
  EXPECT_EQ(tokenizer.eos_id(), 3);
  EXPECT_EQ(tokenizer.vocab_size(), 4);
  EXPECT_EQ(tokenizer.encode("ab<s>a"), (Ids{0, 1, 2, 0}));
}

TEST(Tokenizer, PutsTheTokensAroundATextThatTheConfigAsksFor) {
  struct Style {
    const char* name;
    const char* bos;
    const char* eos;
    bool adds_bos;  // its template adds a begin token
  };
  for (const Style& style : {Style{"qwen2", "<|im_start|>", "<|endoftext|>", false},
                             Style{"llama3", "<|begin_of_text|>", "<|end_of_text|>", true}}) {
    const TempDir directory;
    std::filesystem::copy(golden(style.name) / "tokenizer.json", directory.path());
    const auto load = [&](const std::string& keys) {
      directory.write("tokenizer_config.json",
                      fmt::format(R"({{"bos_token":"{}","eos_token":{{"content":"{}"}}{}}})",
                                  style.bos, style.eos, keys));
      return Tokenizer::load(directory.path());
    };
    const Ids plain = load("").encode("a word", false);
    const auto wrapped = [&](const std::string& keys, bool bos, bool eos) {
      const Tokenizer tokenizer = load(keys);
      Ids expected = plain;
      if (bos) expected.insert(expected.begin(), tokenizer.token_id(style.bos).value());
      if (eos) expected.push_back(tokenizer.token_id(style.eos).value());
      EXPECT_EQ(tokenizer.encode("a word"), expected) << style.name << keys;
    };
    wrapped("", style.adds_bos, false);
    wrapped(R"(,"add_bos_token":true,"add_eos_token":false)", true, false);
    wrapped(R"(,"add_bos_token":false,"add_eos_token":true)", false, true);
    wrapped(R"(,"add_bos_token":null,"add_eos_token":true)", style.adds_bos, true);
  }
}

TEST(Tokenizer, WarnsWhereTheConfigAndTheTemplateDisagree) {
  const auto warnings = [](const std::string& style, const std::string& config) {
    const TempDir directory;
    std::filesystem::copy(golden(style) / "tokenizer.json", directory.path());
    directory.write("tokenizer_config.json", config);
    testing::internal::CaptureStderr();
    Tokenizer::load(directory.path());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warnings("spm", R"({"bos_token":"<s>","add_bos_token":true})"), "");
  EXPECT_EQ(warnings("qwen2", R"({"bos_token":"<|im_start|>","add_bos_token":true})"), "");
  const std::string text = warnings("spm", R"({"bos_token":"<s>","add_bos_token":false})");
  EXPECT_NE(
      text.find("add_bos_token is false, where the template of tokenizer.json says otherwise"),
      std::string::npos)
      << text;
  EXPECT_NE(warnings("qwen2", R"({"bos_token":null,"add_bos_token":true})")
                .find("add_bos_token is true, but names no token"),
            std::string::npos);
}

TEST(Tokenizer, NamesTheFileAndTheComponentThatItCannotUse) {
  const TempDir directory;
  const auto message = [&](const std::string& text) -> std::string {
    directory.write("tokenizer.json", text);
    try {
      Tokenizer::load(directory.path());
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos);
      return error.what();
    }
    return "loaded";
  };
  const std::string model = R"("model":{"vocab":{"a":0},"merges":[]}})";
  EXPECT_NE(message("{").find("tokenizer.json"), std::string::npos);
  EXPECT_NE(message("[]").find("tokenizer.json"), std::string::npos);
  EXPECT_NE(message("{}").find("model"), std::string::npos);
  EXPECT_NE(message(R"({"normalizer":{"type":"Precompiled"},)" + model).find("Precompiled"),
            std::string::npos);
  EXPECT_NE(message(R"({"pre_tokenizer":{"type":"BertPreTokenizer"},)" + model).find("Bert"),
            std::string::npos);
  EXPECT_NE(message(R"({"post_processor":{"type":"BertProcessing"},)" + model).find("Bert"),
            std::string::npos);
  EXPECT_NE(message(R"({"decoder":{"type":"CTC"},)" + model).find("CTC"), std::string::npos);
  EXPECT_NE(message(R"({"added_tokens":[{"content":"x"}],)" + model).find("id"), std::string::npos);
  EXPECT_NE(message(R"({"added_tokens":3,)" + model).find("added_tokens"), std::string::npos);
  EXPECT_NE(message(R"({"normalizer":{"type":"Sequence"},)" + model).find("normalizers"),
            std::string::npos);
}

TEST(Tokenizer, SurvivesAFileThatIsCutAnywhere) {
  std::ifstream file(golden("spm") / "tokenizer.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const TempDir directory;
  for (size_t length = 0; length < text.size(); length += text.size() / 40) {
    directory.write("tokenizer.json", text.substr(0, length));
    EXPECT_THROW(Tokenizer::load(directory.path()), Error);
  }
  EXPECT_THROW(Tokenizer::load(directory.path() / "absent"), Error);
}

}  // namespace
}  // namespace encore::text
