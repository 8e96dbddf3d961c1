// Gives code points the character classes of the `tokenizers` package, and reads and writes UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace encore::text {

constexpr uint32_t kNumCodePoints = 0x110000;

// The bits of a code point's class. Letters, numbers, spaces and words are those of regular
// expressions in Unicode 16; a word character (\w) is a letter, a mark, a decimal or letter number,
// a connector or a joiner. Other components of the `tokenizers` package use tables of other Unicode
// versions.
enum CharClass : uint8_t {
  kLetter = 1,
  kNumber = 2,
  kMark = 4,         // the normalizer StripAccents takes it away
  kPunctuation = 8,  // the pre-tokenizer Punctuation splits at it
  kSpace = 16,
  kWord = 32,
  kDigit = 64,   // the pre-tokenizer Digits splits at it
  kInert = 128,  // too new for the package, whose normalization leaves it as it is
};

// Each entry is start << 8 | class, for the code points from `start` up to the next entry's start.
extern const uint32_t kCharClassRanges[];
extern const int kNumCharClassRanges;

// A range of code points to which PCRE2 gives no general category, or another category than Unicode
// 16 gives. `category` is the category in Unicode 16.
struct NewerCategory {
  uint32_t first;
  uint32_t last;
  char category[3];
};
extern const NewerCategory kNewerCategories[];
extern const int kNumNewerCategories;

// A range of code points whose lower case utf8proc may not know. The lower case of a code point c
// of the range is the code point c + `distance`.
struct NewerLowerCase {
  uint32_t first;
  uint32_t last;
  int32_t distance;
};
extern const NewerLowerCase kNewerLowerCases[];
extern const int kNumNewerLowerCases;

// Returns an array with the classes of all 0x110000 code points, which the first call builds.
// Threads: any.
const uint8_t* char_classes();

struct CodePoint {
  uint32_t value;
  uint32_t num_bytes;
};

// Reads the code point at `p`. REQUIRES: valid UTF-8.
inline CodePoint decode_utf8(const char* p) {
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(p[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1fU) << 6U | (byte(1) & 0x3fU), 2};
  if (lead < 0xf0) {
    return {(lead & 0xfU) << 12U | (byte(1) & 0x3fU) << 6U | (byte(2) & 0x3fU), 3};
  }
  return {
      (lead & 0x7U) << 18U | (byte(1) & 0x3fU) << 12U | (byte(2) & 0x3fU) << 6U | (byte(3) & 0x3fU),
      4};
}

// Reads the code point that ends just before `end`. REQUIRES: valid UTF-8, and at least one code
// point.
inline CodePoint decode_utf8_before(const char* end) {
  const char* p = end - 1;
  while ((static_cast<uint8_t>(*p) & 0xc0U) == 0x80)
    --p;
  return decode_utf8(p);
}

void append_utf8(uint32_t code_point, std::string& out);

// Returns how many columns a code point takes on a terminal: 0 for one that combines with the
// character before it, 2 for a wide one.
int display_width(uint32_t code_point);

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

// Turns a stream of bytes into valid UTF-8. Bytes that form no character become U+FFFD, one for
// each maximal part of a sequence. A character that is still incomplete is held back.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  // Ends the stream: an incomplete character becomes U+FFFD.
  void finish(std::string& out);

 private:
  uint8_t pending_[4] = {};
  int num_pending_ = 0;
  int num_missing_ = 0;
  uint8_t lowest_ = 0x80;  // least and greatest next byte that is valid
  uint8_t highest_ = 0xbf;
};

bool is_valid_utf8(std::string_view bytes);

// Turns bytes into valid UTF-8, with U+FFFD where Utf8Stream puts it.
std::string to_valid_utf8(std::string_view bytes);

// Appends the bytes that a token of a byte-level vocabulary stands for. Such a vocabulary writes
// each byte as one printable character. Returns false when a character is not of that alphabet.
bool append_byte_level_bytes(std::string_view token, std::string& out);
// Appends the printable character with which byte-level vocabularies write each byte.
void append_byte_level_text(std::string_view bytes, std::string& out);

}  // namespace encore::text
