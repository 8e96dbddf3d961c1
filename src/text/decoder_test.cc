#include "text/decoder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/testing/message_of.h"

namespace encore::text {
namespace {

// Returns the pieces of text as they come from the stream, separated by bars.
std::string pieces(const std::string& json, const std::vector<std::string>& tokens) {
  DecoderStream stream = Decoder::parse(json::parse(json, "test"), "test").start();
  std::string out;
  for (const std::string& token : tokens) {
    stream.push(token, out);
    out.push_back('|');
  }
  stream.finish(out);
  return out;
}

constexpr const char* kLlama2 = R"({"type":"Sequence","decoders":[
    {"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},
    {"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";

TEST(Decoder, HoldsBackWhatIsNoCharacterYet) {
  const std::string bytes = R"({"type":"ByteLevel"})";
  EXPECT_EQ(pieces(bytes, {"a", "\u0120", "\u00c3", "\u00a9", "\u00c3"}),
            "a| ||\u00e9||\xef\xbf\xbd");
  EXPECT_EQ(pieces(bytes, {"\u00c3", "a"}),
            "|\xef\xbf\xbd"
            "a|");
  EXPECT_EQ(pieces(bytes, {"no alphabet"}), "no alphabet|");
}

TEST(Decoder, KnowsTheBytesOfATokenInTheMidstOfAText) {
  const auto bytes = [](const std::string& json, const std::string& token) {
    return Decoder::parse(json::parse(json, "test"), "test").bytes_of(token);
  };
  const std::string byte_level = R"({"type":"ByteLevel"})";
  EXPECT_EQ(bytes(byte_level, "\u0120a"), " a");
  EXPECT_EQ(bytes(byte_level, "\u00c3"), "\xc3");  // half a character
  EXPECT_EQ(bytes(kLlama2, "_a_"), " a ");
  EXPECT_EQ(bytes(kLlama2, "<0xC3>"), "\xc3");
  const std::string metaspace = R"({"type":"Metaspace","replacement":"_","add_prefix_space":true})";
  EXPECT_EQ(bytes(metaspace, "_a_b"), " a b");
  const std::string strip = R"({"type":"Strip","content":"_","start":1,"stop":2})";
  EXPECT_EQ(bytes(strip, "__a___"), "_a_");
  EXPECT_THROW(bytes("null", "a"), Error);
}

TEST(Decoder, ShowsARunOfBytesAtItsEnd) {
  EXPECT_EQ(pieces(kLlama2, {"_a", "<0xC3>", "<0xA9>", "_b"}), "a|||\u00e9 b|");
  EXPECT_EQ(pieces(kLlama2, {"<0xC3>", "<0xA9>"}), "||\u00e9");
  EXPECT_EQ(pieces(kLlama2, {"<0xA9>", "<0x41>", "x"}), "||\xef\xbf\xbd\xef\xbf\xbdx|");
}

TEST(Decoder, StripsOnlyTheFirstSpaceOfTheText) {
  EXPECT_EQ(pieces(kLlama2, {"_", "_a", "_b"}), "| a| b|");
  EXPECT_EQ(pieces(kLlama2, {"a", "_b"}), "a| b|");
}

TEST(Decoder, StripsAtTheEndOfTheFusedText) {
  const std::string strip = R"({"type":"Sequence","decoders":[{"type":"Fuse"},
      {"type":"Strip","content":".","start":1,"stop":2}]})";
  EXPECT_EQ(pieces(strip, {"..a.", ".", ".b..", "."}), ".a||...b|.|");
  EXPECT_EQ(pieces(strip, {".", "."}), "||");
}

TEST(Decoder, WaitsForTheWholeTextWhereAStepNeedsIt) {
  const std::string replace = R"({"type":"Sequence","decoders":[{"type":"Fuse"},
      {"type":"Replace","pattern":{"String":"ab"},"content":"x"}]})";
  EXPECT_EQ(pieces(replace, {"a", "b"}), "||x");
}

TEST(Decoder, ReadsMetaspaceAndJoinsBySpacesWithoutADecoder) {
  const std::string metaspace = R"({"type":"Metaspace","replacement":"_"})";
  EXPECT_EQ(pieces(metaspace, {"_a", "_b_"}), "a| b |");
  EXPECT_EQ(pieces("null", {"a", "b"}), "a| b|");
}

TEST(Decoder, NamesWhatItDoesNotHave) {
  EXPECT_EQ(message_of(ErrorKind::kUnsupported, [&] { pieces(R"({"type":"WordPiece"})", {}); }),
            "test: decoder 'WordPiece'");
}

}  // namespace
}  // namespace encore::text
