#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/testing/message_of.h"

namespace encore::text {
namespace {

using List = std::vector<std::string>;

List words_of(const std::string& json, const std::string& text, bool at_origin = true) {
  const PreTokenizer pre_tokenizer = PreTokenizer::parse(json::parse(json, "test"), "test");
  Words words;
  words.reset(text, at_origin);
  pre_tokenizer.split(words);
  List list;
  for (const Span span : words.spans())
    list.emplace_back(span.in(words.text()));
  return list;
}

List split_at_dash(const std::string& behavior, bool invert = false) {
  return words_of(R"({"type":"Split","pattern":{"String":"-"},"behavior":")" + behavior +
                      R"(","invert":)" + (invert ? "true}" : "false}"),
                  "the-final--countdown");
}

TEST(Split, DoesWithDelimitersWhatItsBehaviorSays) {
  EXPECT_EQ(split_at_dash("Removed"), (List{"the", "final", "countdown"}));
  EXPECT_EQ(split_at_dash("Isolated"), (List{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split_at_dash("MergedWithPrevious"), (List{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split_at_dash("MergedWithNext"), (List{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split_at_dash("Contiguous"), (List{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split_at_dash("Removed", true), (List{"-", "-", "-"}));
}

TEST(PreTokenizer, SplitsDigitsPunctuationAndWhitespace) {
  EXPECT_EQ(words_of(R"({"type":"Digits","individual_digits":true})", "a12"),
            (List{"a", "1", "2"}));
  EXPECT_EQ(words_of(R"({"type":"Digits","individual_digits":false})", "a12"), (List{"a", "12"}));
  EXPECT_EQ(words_of(R"({"type":"Punctuation"})", "a+b\u3002"), (List{"a", "+", "b", "\u3002"}));
  EXPECT_EQ(words_of(R"({"type":"Whitespace"})", "ab, c!?"), (List{"ab", ",", "c", "!?"}));
  EXPECT_EQ(words_of(R"({"type":"WhitespaceSplit"})", " a\u3000b "), (List{"a", "b"}));
  EXPECT_EQ(words_of(R"({"type":"CharDelimiterSplit","delimiter":"|"})", "a||b"), (List{"a", "b"}));
}

TEST(Metaspace, WritesAndPrependsItsReplacement) {
  const auto metaspace = [](const std::string& scheme, const std::string& split) {
    return R"({"type":"Metaspace","replacement":"_","prepend_scheme":")" + scheme +
           R"(","split":)" + split + "}";
  };
  EXPECT_EQ(words_of(metaspace("always", "true"), "a b  c"), (List{"_a", "_b", "_", "_c"}));
  EXPECT_EQ(words_of(metaspace("always", "false"), "a b", false), (List{"_a_b"}));
  EXPECT_EQ(words_of(metaspace("first", "false"), "a b", false), (List{"a_b"}));
  EXPECT_EQ(words_of(metaspace("first", "false"), "a b", true), (List{"_a_b"}));
  EXPECT_EQ(words_of(metaspace("never", "true"), "a b"), (List{"a", "_b"}));
  EXPECT_EQ(words_of(R"({"type":"Metaspace","replacement":"_","add_prefix_space":false,
                         "prepend_scheme":"never"})",
                     "a"),
            (List{"a"}));
}

TEST(ByteLevel, StaysBytesAtTheEndAndIsTextBefore) {
  const std::string bytes = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})";
  EXPECT_EQ(words_of(bytes, "a \u00e9"), (List{" a", " \u00e9"}));
  EXPECT_EQ(words_of(R"({"type":"Sequence","pretokenizers":[)" + bytes +
                         R"(,{"type":"Digits","individual_digits":true}]})",
                     "a1"),
            (List{"\u0120a", "1"}));
  EXPECT_TRUE(PreTokenizer::parse(json::parse(bytes, "test"), "test").yields_bytes());
}

TEST(PreTokenizer, NamesWhatItDoesNotHave) {
  EXPECT_EQ(
      message_of(ErrorKind::kUnsupported, [&] { words_of(R"({"type":"UnicodeScripts"})", "a"); }),
      "test: pre-tokenizer 'UnicodeScripts'");
}

}  // namespace
}  // namespace encore::text
