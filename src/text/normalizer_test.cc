#include "text/normalizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/testing/message_of.h"

namespace encore::text {
namespace {

std::string normalized(const std::string& json, std::string text) {
  Normalizer::parse(json::parse(json, "test"), "test").apply(text);
  return text;
}

TEST(NormalizeUnicode, ComposesAndDecomposes) {
  EXPECT_EQ(normalized(R"({"type":"NFC"})", "e\u0301 \u1100\u1161\u11a8 \u212b x"),
            "\u00e9 \uac01 \u00c5 x");
  EXPECT_EQ(normalized(R"({"type":"NFD"})", "\u00e9\uac01"), "e\u0301\u1100\u1161\u11a8");
  EXPECT_EQ(normalized(R"({"type":"NFKC"})", "\ufb01\u00b2\uff21"), "fi2A");
  EXPECT_EQ(normalized(R"({"type":"NFKD"})", "\ufb01\u1e9b\u0323"), "fis\u0323\u0307");
}

TEST(NormalizeUnicode, OrdersMarksByTheirClass) {
  EXPECT_EQ(normalized(R"({"type":"NFC"})", "a\u0315\u0300\u05ae\u0300b"),
            "\u00e0\u05ae\u0300\u0315b");
  EXPECT_EQ(normalized(R"({"type":"NFC"})", "\u0958"),
            "\u0915\u093c");  // excluded from composition
}

TEST(NormalizeUnicode, LeavesAloneWhatThePackageDoesNotKnow) {
  // The texts have marks of Unicode 10 and 14, which newer tables would reorder. The `tokenizers`
  // package leaves them in place.
  for (const char* text : {"\u0317\u0d3c", "a\u0301\u0d3c\u0301", "\u0301\u1ac1\u0316"}) {
    EXPECT_EQ(normalized(R"({"type":"NFD"})", text), text);
  }
  EXPECT_EQ(normalized(R"({"type":"NFC"})", "a\u0d3c\u0301\u0316"), "a\u0d3c\u0316\u0301");
  EXPECT_EQ(normalized(R"({"type":"NFC"})", "\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(normalized(R"({"type":"NFKC"})", "\u32ff\U0001fbf0"), "\u32ff\U0001fbf0");
  EXPECT_EQ(normalized(R"({"type":"StripAccents"})", "a\u0301\u0d3c"), "a\u0d3c");
}

TEST(NormalizeUnicode, LeavesNormalTextAsItIs) {
  const std::string text = "plain, na\u00efve \u4e16\u754c \U0001f642";
  EXPECT_EQ(normalized(R"({"type":"NFC"})", text), text);
}

TEST(NormalizeUnicode, TakesLinearTimeOnARunOfMarks) {
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i)
    text += "\u0301\u0316";
  const std::string result = normalized(R"({"type":"NFC"})", text);
  EXPECT_EQ(result.size(), text.size() - 1);  // the first acute joins the letter
  EXPECT_EQ(result.substr(0, 4), "\u00e1\u0316");
}

TEST(Normalizer, AppliesItsStepsInOrder) {
  EXPECT_EQ(normalized(R"({"type":"Sequence","normalizers":[
      {"type":"Prepend","prepend":"_"},
      {"type":"Replace","pattern":{"String":" "},"content":"_"},
      {"type":"Replace","pattern":{"Regex":"\\d+"},"content":"#"}]})",
                       "a b 12"),
            "_a_b_#");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"_"})", ""), "");
}

TEST(Normalizer, LowersStripsAndDropsMarks) {
  EXPECT_EQ(normalized(R"({"type":"Lowercase"})", "\u0130\u00c9\u03a3A"), "i\u0307\u00e9\u03c3a");
  EXPECT_EQ(normalized(R"({"type":"Lowercase"})", "\u1c89\U00010d50"), "\u1c8a\U00010d70");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":true,"strip_right":false})", "\u3000 a "),
            "a ");
  EXPECT_EQ(normalized(R"({"type":"StripAccents"})", "e\u0301"), "e");
  EXPECT_EQ(normalized(R"({"type":"ByteLevel"})", " \u00e9"), "\u0120\u00c3\u00a9");
}

TEST(Normalizer, NamesWhatItDoesNotHave) {
  const auto normalize = [] {
    normalized(R"({"type":"Precompiled","precompiled_charsmap":"AA=="})", "a");
  };
  EXPECT_EQ(message_of(ErrorKind::kUnsupported, normalize), "test: normalizer 'Precompiled'");
}

}  // namespace
}  // namespace encore::text
