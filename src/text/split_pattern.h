// Hand-written matchers for the split patterns of well-known model families: one pass, no
// backtracking.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace encore::text {

// A half-open range of bytes of some text.
struct Span {
  uint32_t begin;
  uint32_t end;

  [[nodiscard]] uint32_t size() const { return end - begin; }
  [[nodiscard]] std::string_view in(std::string_view text) const {
    return text.substr(begin, end - begin);
  }
  friend bool operator==(const Span&, const Span&) = default;
};

// Patterns that match every character of any text, so that their matches alone are the words.
enum class SplitPattern {
  kGpt2,    // GPT-2, and the built-in pattern of ByteLevel
  kLlama3,  // digits in groups of up to three
  kQwen2,   // digits one by one
};

// The pattern's regular expression as tokenizer.json spells it.
std::string_view regex_of(SplitPattern pattern);
std::optional<SplitPattern> find_split_pattern(std::string_view regex);

// Appends the words of text[range] to `words`: what repeated matching of the regular expression
// finds. REQUIRES: valid UTF-8. Threads: any.
void split_words(SplitPattern pattern, std::string_view text, Span range, std::vector<Span>& words);

}  // namespace encore::text
