// Hand-written matchers for the split patterns of well-known model families. They need one pass and
// do not backtrack.
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

// The patterns with hand-written matchers. Each matches every character of any text, so the words
// are exactly its matches.
enum class SplitPattern {
  kGpt2,    // GPT-2, and the built-in pattern of ByteLevel
  kLlama3,  // Llama 3; takes digits in groups of up to three
  kQwen2,   // Qwen 2; takes digits one by one
};

// Returns the pattern's regular expression as tokenizer.json spells it.
std::string_view regex_of(SplitPattern pattern);
std::optional<SplitPattern> find_split_pattern(std::string_view regex);

// Appends the words of text[range] to `words`: the matches that the pattern's regular expression
// finds one after another. REQUIRES: valid UTF-8. Threads: any.
void split_words(SplitPattern pattern, std::string_view text, Span range, std::vector<Span>& words);

}  // namespace encore::text
