#include "text/bpe.h"

#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "text/unicode.h"

namespace encore::text {
namespace {

std::vector<int32_t> encode(const BpeModel& model, std::string_view word) {
  std::vector<int32_t> ids;
  model.encode(word, ids);
  return ids;
}

BpeModel parse(const std::string& json, bool reads_bytes = false) {
  return BpeModel::parse(json::parse(json, "test"), reads_bytes, "test");
}

using Ids = std::vector<int32_t>;

TEST(Bpe, MergesTheLowestRankFirstAndTheLeftmostOfEquals) {
  const BpeModel model = parse(R"({"type":"BPE","vocab":{"a":0,"b":1,"c":2,"bc":3,"ab":4,"aa":5},
      "merges":["b c",["a","b"],"a a"]})");
  EXPECT_EQ(encode(model, "abc"), (Ids{0, 3}));
  EXPECT_EQ(encode(model, "ab"), (Ids{4}));
  EXPECT_EQ(encode(model, "aaa"), (Ids{5, 0}));
}

TEST(Bpe, FallsBackToBytesOrTheUnknownToken) {
  const std::string vocab = R"("vocab":{"<unk>":0,"a":1,"<0xC3>":2,"<0xA9>":3},"merges":[])";
  const BpeModel fallback =
      parse(R"({"byte_fallback":true,"unk_token":"<unk>","fuse_unk":true,)" + vocab + "}");
  EXPECT_EQ(encode(fallback, "a\u00e9a"), (Ids{1, 2, 3, 1}));
  EXPECT_EQ(encode(fallback, "\u4e16\u4e16a"), (Ids{0, 1}));
  const BpeModel apart = parse(R"({"unk_token":"<unk>",)" + vocab + "}");
  EXPECT_EQ(encode(apart, "\u4e16\u4e16a"), (Ids{0, 0, 1}));
  const BpeModel none = parse("{" + vocab + "}");
  EXPECT_EQ(encode(none, "\u4e16a\u4e16"), (Ids{1}));
}

TEST(Bpe, TakesAWholeWordWhenMergesAreIgnored) {
  const std::string rest = R"("vocab":{"a":0,"b":1,"ab":2},"merges":[]})";
  EXPECT_EQ(encode(parse(R"({"ignore_merges":true,)" + rest), "ab"), (Ids{2}));
  EXPECT_EQ(encode(parse("{" + rest), "ab"), (Ids{0, 1}));
}

// A byte-level model with random merges over three letters: its JSON, tokens and merges.
struct RandomModel {
  std::string json;
  std::vector<std::string> tokens;                                      // by id
  std::vector<std::pair<std::pair<int32_t, int32_t>, int32_t>> merges;  // in the order of rank

  explicit RandomModel(std::mt19937& random) {
    std::vector<std::string> merge_texts;
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back();
      append_byte_level_text(std::string(1, static_cast<char>(byte)), tokens.back());
    }
    std::vector<int32_t> usable{'a', 'b', 'c'};
    for (int i = 0; i < 30; ++i) {
      const int32_t left = usable[random() % usable.size()];
      const int32_t right = usable[random() % usable.size()];
      const std::string joined = tokens[left] + tokens[right];
      if (std::find(tokens.begin(), tokens.end(), joined) != tokens.end()) continue;
      usable.push_back(static_cast<int32_t>(tokens.size()));
      merges.push_back({{left, right}, usable.back()});
      merge_texts.push_back(fmt::format("[\"{}\",\"{}\"]", tokens[left], tokens[right]));
      tokens.push_back(joined);
    }
    json = R"({"vocab":{)";
    for (size_t id = 0; id < tokens.size(); ++id) {
      const std::string escape = tokens[id] == "\"" || tokens[id] == "\\" ? "\\" : "";
      json += fmt::format("{}\"{}{}\":{}", id == 0 ? "" : ",", escape, tokens[id], id);
    }
    json += fmt::format(R"(}},"merges":[{}]}})", fmt::join(merge_texts, ","));
  }

  [[nodiscard]] Ids expected(std::string_view word) const {
    Ids ids(word.begin(), word.end());
    while (true) {
      size_t best_rank = merges.size();
      size_t best_at = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        for (size_t rank = 0; rank < best_rank; ++rank) {
          if (merges[rank].first == std::pair(ids[i], ids[i + 1])) {
            best_rank = rank;
            best_at = i;
          }
        }
      }
      if (best_rank == merges.size()) return ids;
      ids[best_at] = merges[best_rank].second;
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
    }
  }
};

TEST(Bpe, GivesShortLongAndCutWordsTheSameTokensAsTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const RandomModel random_model(random);
    const BpeModel model = parse(random_model.json, true);
    for (int i = 0; i < 40; ++i) {
      std::string word;
      const size_t length = random() % (i % 4 == 0 ? 300 : 40);
      // One letter of `foreign` x 3 is an x, on average. No merge joins an x with its neighbours,
      // so a word can be cut there. A small `foreign` gives many places to cut, a large one long
      // stretches between them.
      const size_t foreign = random() % 8 + 1;
      while (word.size() < length) {
        word.push_back(random() % (foreign * 3) == 0 ? 'x' : static_cast<char>('a' + random() % 3));
      }
      ASSERT_EQ(encode(model, word), random_model.expected(word)) << word;
      ASSERT_EQ(encode(model, word), random_model.expected(word)) << word << " from the cache";
    }
  }
}

TEST(Bpe, RefusesWhatItDoesNotHave) {
  const auto kind_of = [](const std::string& json) {
    try {
      parse(json);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kDevice;
  };
  EXPECT_EQ(kind_of(R"({"type":"WordPiece","vocab":{}})"), ErrorKind::kUnsupported);
  EXPECT_EQ(kind_of(R"({"dropout":0.1,"vocab":{},"merges":[]})"), ErrorKind::kUnsupported);
  EXPECT_EQ(kind_of(R"({"continuing_subword_prefix":"##","vocab":{},"merges":[]})"),
            ErrorKind::kUnsupported);
  EXPECT_EQ(kind_of(R"({"vocab":{}})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"vocab":[],"merges":[]})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"vocab":{"a":-1},"merges":[]})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"vocab":{"a":9999999999},"merges":[]})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"vocab":{"a":0.5},"merges":[]})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"vocab":{"a":0},"merges":["a a"]})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"vocab":{"a":0},"merges":["a"]})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"vocab":{"a":0},"merges":[["a"]]})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"vocab":{"a":0},"merges":[3]})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"vocab":{"":0},"merges":[["",""]]})"), ErrorKind::kModel);
  EXPECT_EQ(kind_of(R"({"unk_token":"x","vocab":{"a":0},"merges":[]})"), ErrorKind::kModel);
}

}  // namespace
}  // namespace encore::text
