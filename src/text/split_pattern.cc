#include "text/split_pattern.h"

#include "base/error.h"
#include "text/unicode.h"

namespace encore::text {

namespace {

constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr uint8_t kAnyClass = kLetter | kNumber | kSpace;

// Matches one split pattern in a text. Each member function takes the start of a match and returns
// its end.
class Matcher {
 public:
  Matcher(SplitPattern pattern, const char* end)
      : is_gpt2_(pattern == SplitPattern::kGpt2),
        max_digits_(pattern == SplitPattern::kLlama3 ? 3 : 1),
        classes_(char_classes()),
        end_(end) {}

  [[nodiscard]] const char* match(const char* p) const {
    return is_gpt2_ ? match_gpt2(p) : match_llama(p);
  }

 private:
  struct Char {
    uint8_t classes;
    uint32_t num_bytes;
  };

  // Returns the character at `p`. At the end of the text, it has no class and no bytes.
  [[nodiscard]] Char at(const char* p) const {
    if (p == end_) return {0, 0};
    if (const auto byte = static_cast<uint8_t>(*p); byte < 0x80) return {classes_[byte], 1};
    const CodePoint c = decode_utf8(p);
    return {classes_[c.value], c.num_bytes};
  }

  [[nodiscard]] const char* skip(const char* p, uint8_t classes) const {
    for (Char c = at(p); (c.classes & classes) != 0; c = at(p))
      p += c.num_bytes;
    return p;
  }

  // Returns the end of the match of [^\s\p{L}\p{N}]* at `p`.
  [[nodiscard]] const char* skip_other(const char* p) const {
    for (Char c = at(p); c.num_bytes > 0 && (c.classes & kAnyClass) == 0; c = at(p)) {
      p += c.num_bytes;
    }
    return p;
  }

  static bool is_newline(char c) { return c == '\n' || c == '\r'; }

  // Returns the end of the match of 's|'t|'re|'ve|'m|'ll|'d at the apostrophe `p`, or null where
  // none matches. Ignores case when `any_case`, and then takes the long s (U+017F) for an s too.
  [[nodiscard]] const char* match_contraction(const char* p, bool any_case) const {
    const auto letter = [&](int i) -> char {
      if (end_ - p <= i) return 0;
      const char c = p[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    switch (letter(1)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return p + 2;
      case 'r':
      case 'v':
        return letter(2) == 'e' ? p + 3 : nullptr;
      case 'l':
        return letter(2) == 'l' ? p + 3 : nullptr;
      case '\xc5':
        return any_case && letter(2) == '\xbf' ? p + 3 : nullptr;
      default:
        return nullptr;
    }
  }

  // Returns the end of the match of \s+(?!\S)|\s+ : a run of spaces leaves its last space to the
  // word that follows.
  [[nodiscard]] const char* match_spaces(const char* p, const char* run_end) const {
    if (run_end == end_) return run_end;
    const char* last = run_end - decode_utf8_before(run_end).num_bytes;
    return last > p ? last : run_end;
  }

  [[nodiscard]] const char* match_gpt2(const char* p) const {
    if (*p == '\'') {
      if (const char* q = match_contraction(p, false)) return q;
    }
    const char* start = p;
    Char c = at(p);
    if (*p == ' ') c = at(++p);
    if ((c.classes & kLetter) != 0) return skip(p + c.num_bytes, kLetter);
    if ((c.classes & kNumber) != 0) return skip(p + c.num_bytes, kNumber);
    if (c.num_bytes > 0 && (c.classes & kSpace) == 0) return skip_other(p + c.num_bytes);
    return match_spaces(start, skip(start, kSpace));
  }

  [[nodiscard]] const char* match_llama(const char* p) const {
    if (*p == '\'') {
      if (const char* q = match_contraction(p, true)) return q;
    }
    const Char c = at(p);
    if ((c.classes & kLetter) != 0) return skip(p + c.num_bytes, kLetter);
    if ((c.classes & kNumber) != 0) return match_digits(p);
    const char* next = p + c.num_bytes;
    if (!is_newline(*p)) {
      if (const Char d = at(next); (d.classes & kLetter) != 0) {
        return skip(next + d.num_bytes, kLetter);
      }
    }
    const char* other = *p == ' ' ? next : p;
    if (const char* q = skip_other(other); q > other) {
      while (q < end_ && is_newline(*q))
        ++q;
      return q;
    }
    return match_lines(p);
  }

  [[nodiscard]] const char* match_digits(const char* p) const {
    for (int i = 0; i < max_digits_; ++i) {
      const Char c = at(p);
      if ((c.classes & kNumber) == 0) break;
      p += c.num_bytes;
    }
    return p;
  }

  // Returns the end of the match of \s*[\r\n]+|\s+(?!\S)|\s+ : a run of spaces ends behind its last
  // line end, if it has one.
  [[nodiscard]] const char* match_lines(const char* p) const {
    const char* run_end = p;
    const char* line_end = nullptr;
    for (Char c = at(p); (c.classes & kSpace) != 0; c = at(run_end)) {
      run_end += c.num_bytes;
      if (is_newline(run_end[-1])) line_end = run_end;
    }
    return line_end != nullptr ? line_end : match_spaces(p, run_end);
  }

  bool is_gpt2_;
  int max_digits_;
  const uint8_t* classes_;
  const char* end_;
};

}  // namespace

std::string_view regex_of(SplitPattern pattern) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return kGpt2Regex;
    case SplitPattern::kLlama3:
      return kLlama3Regex;
    case SplitPattern::kQwen2:
      return kQwen2Regex;
  }
  return {};
}

std::optional<SplitPattern> find_split_pattern(std::string_view regex) {
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2}) {
    if (regex == regex_of(pattern)) return pattern;
  }
  return std::nullopt;
}

void split_words(SplitPattern pattern, std::string_view text, Span range,
                 std::vector<Span>& words) {
  const char* base = text.data();
  const char* end = base + range.end;
  const Matcher matcher(pattern, end);
  for (const char* p = base + range.begin; p < end;) {
    const char* next = matcher.match(p);
    ENCORE_CHECK(next > p, "a split pattern matched nothing at byte {}", p - base);
    words.push_back({static_cast<uint32_t>(p - base), static_cast<uint32_t>(next - base)});
    p = next;
  }
}

}  // namespace encore::text
