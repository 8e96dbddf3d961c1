#include "text/unicode.h"

#include <gtest/gtest.h>

namespace encore::text {
namespace {

TEST(CharClasses, KnowLettersNumbersMarksAndSpaces) {
  const uint8_t* classes = char_classes();
  EXPECT_EQ(classes[0x61], kLetter | kWord);           // a
  EXPECT_EQ(classes[0x37], kNumber | kWord | kDigit);  // 7
  EXPECT_EQ(classes[0x5f], kPunctuation | kWord);      // _
  EXPECT_EQ(classes[0x2b], kPunctuation);              // +
  EXPECT_EQ(classes[0x20ac], 0);                       // a euro
  EXPECT_EQ(classes[0xa0], kSpace);
  EXPECT_EQ(classes[0x301], kMark | kWord);
  EXPECT_EQ(classes[0xb2], kNumber | kDigit);  // a superscript is a number but no word character
  EXPECT_EQ(classes[0x4e2d], kLetter | kWord);
  EXPECT_EQ(classes[0x180e], 0);                // no space since Unicode 6.3
  EXPECT_EQ(classes[0x1c89], kLetter | kWord);  // new in Unicode 16
  EXPECT_EQ(classes[0x10ffff], 0);
}

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    append_utf8(c, text);
    ASSERT_TRUE(is_valid_utf8(text)) << c;
    ASSERT_EQ(decode_utf8(text.data()).value, c);
    ASSERT_EQ(decode_utf8(text.data()).num_bytes, text.size());
    ASSERT_EQ(decode_utf8_before(text.data() + text.size()).value, c);
  }
}

TEST(Utf8, ReplacesEachMaximalPartOfWhatIsNoCharacter) {
  EXPECT_EQ(to_valid_utf8("a\xe4\xb8z"), "a\xef\xbf\xbdz");
  EXPECT_EQ(to_valid_utf8("\xc0\x80"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(to_valid_utf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(to_valid_utf8("\xf0\x9f\x99"), "\xef\xbf\xbd");
  EXPECT_EQ(to_valid_utf8("\xf0\x9f\x99\xf0\x9f\x99\x82"), "\xef\xbf\xbd\xf0\x9f\x99\x82");
  EXPECT_EQ(to_valid_utf8("\xff"
                          "ok"),
            "\xef\xbf\xbd"
            "ok");
}

TEST(Utf8, FindsInvalidBytesBehindLongRunsOfAscii) {
  for (size_t length = 0; length < 40; ++length) {
    EXPECT_TRUE(is_valid_utf8(std::string(length, 'a') + "\xc3\xa9"));
    EXPECT_FALSE(is_valid_utf8(std::string(length, 'a') + "\xc3"));
    EXPECT_FALSE(is_valid_utf8(std::string(length, 'a') + "\xa9"));
    EXPECT_FALSE(is_valid_utf8(std::string(length, 'a') + "\xf4\x90\x80\x80"));
  }
}

TEST(Utf8Stream, HoldsBackAnIncompleteCharacter) {
  Utf8Stream stream;
  std::string out;
  stream.push("a\xf0\x9f", out);
  EXPECT_EQ(out, "a");
  stream.push("\x99", out);
  EXPECT_EQ(out, "a");
  stream.push("\x82", out);
  EXPECT_EQ(out, "a\xf0\x9f\x99\x82");
  stream.push("\xc3", out);
  stream.finish(out);
  EXPECT_EQ(out, "a\xf0\x9f\x99\x82\xef\xbf\xbd");
}

TEST(ByteLevelAlphabet, IsInvertible) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes.push_back(static_cast<char>(byte));
  std::string text;
  append_byte_level_text(bytes, text);
  std::string back;
  EXPECT_TRUE(append_byte_level_bytes(text, back));
  EXPECT_EQ(back, bytes);
  EXPECT_FALSE(append_byte_level_bytes("a b", back));
  EXPECT_EQ(back, bytes);
}

}  // namespace
}  // namespace encore::text
