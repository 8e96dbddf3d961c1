#include "text/split_step.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace encore::text {

namespace {

struct Part {
  Span span;
  bool is_match;
};

void cut_parts(Span range, const std::vector<Span>& matches, bool invert,
               std::vector<Part>& parts) {
  uint32_t at = range.begin;
  for (const Span match : matches) {
    if (at != match.begin) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at != range.end) parts.push_back({{at, range.end}, invert});
}

// Appends the parts of a word, which are matches and the gaps between them, as words. A part joins
// the word before it where `joins(part is a match, previous part is a match)` holds.
template <typename Joins>
void join(const std::vector<Part>& parts, Joins joins, std::vector<Span>& words) {
  const size_t first = words.size();
  bool previous = false;
  for (const Part& part : parts) {
    if (words.size() > first && joins(part.is_match, previous)) {
      words.back().end = part.span.end;
    } else {
      words.push_back(part.span);
    }
    previous = part.is_match;
  }
}

void merge_with_next(const std::vector<Part>& parts, std::vector<Span>& words) {
  const auto first = static_cast<ptrdiff_t>(words.size());
  bool next_is_match = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (static_cast<ptrdiff_t>(words.size()) > first && part->is_match && !next_is_match) {
      words.back().begin = part->span.begin;
    } else {
      words.push_back(part->span);
    }
    next_is_match = part->is_match;
  }
  std::reverse(words.begin() + first, words.end());
}

DelimiterBehavior parse_behavior(const std::string& name, const std::string& where) {
  if (name == "Removed") return DelimiterBehavior::kRemoved;
  if (name == "Isolated") return DelimiterBehavior::kIsolated;
  if (name == "MergedWithPrevious") return DelimiterBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return DelimiterBehavior::kMergedWithNext;
  if (name == "Contiguous") return DelimiterBehavior::kContiguous;
  fail(ErrorKind::kModel, "{}: behavior '{}'", where, name);
}

// A step that splits by one of the hand-written patterns, whose matches cover the whole text
// (SplitPattern).
class KnownSplit final : public PreTokenizerStep {
 public:
  explicit KnownSplit(SplitPattern pattern) : pattern_(pattern) {}
  void apply(Words& words) const override {
    words.split(
        [&](Span word, std::vector<Span>& out) { split_words(pattern_, words.text(), word, out); });
  }

 private:
  SplitPattern pattern_;
};

// A step that cuts words at the matches that `find(text, range, matches)` appends.
class DelimiterSplit final : public PreTokenizerStep {
 public:
  using Find = std::function<void(std::string_view, Span, std::vector<Span>&)>;

  DelimiterSplit(Find find, DelimiterBehavior behavior, bool invert)
      : find_(std::move(find)), behavior_(behavior), invert_(invert) {}
  void apply(Words& words) const override {
    std::vector<Span> matches;
    words.split([&](Span word, std::vector<Span>& out) {
      matches.clear();
      find_(words.text(), word, matches);
      cut(word, matches, behavior_, invert_, out);
    });
  }

 private:
  Find find_;
  DelimiterBehavior behavior_;
  bool invert_;
};

// Makes a function that finds the code points for which `is_delimiter(code point, classes)` holds.
// Each is a match of its own.
template <typename IsDelimiter>
DelimiterSplit::Find find_chars(IsDelimiter is_delimiter) {
  return [is_delimiter](std::string_view text, Span range, std::vector<Span>& matches) {
    const uint8_t* classes = char_classes();
    for (uint32_t i = range.begin; i < range.end;) {
      const CodePoint c = decode_utf8(text.data() + i);
      if (is_delimiter(c.value, classes[c.value])) matches.push_back({i, i + c.num_bytes});
      i += c.num_bytes;
    }
  };
}

DelimiterSplit::Find find_literal(std::string literal) {
  return [literal = std::move(literal)](std::string_view text, Span range,
                                        std::vector<Span>& matches) {
    const std::string_view part = range.in(text);
    for (size_t at = part.find(literal); at != std::string_view::npos;
         at = part.find(literal, at + literal.size())) {
      const auto begin = static_cast<uint32_t>(range.begin + at);
      matches.push_back({begin, static_cast<uint32_t>(begin + literal.size())});
    }
  };
}

// Finds the words that \w+|[^\w\s]+ matches.
void find_whitespace_words(std::string_view text, Span range, std::vector<Span>& matches) {
  const uint8_t* classes = char_classes();
  int previous = 0;  // 0 space, 1 word, 2 other
  for (uint32_t i = range.begin; i < range.end;) {
    const CodePoint c = decode_utf8(text.data() + i);
    const uint8_t bits = classes[c.value];
    const int kind = (bits & kWord) != 0 ? 1 : (bits & kSpace) != 0 ? 0 : 2;
    if (kind != 0 && kind == previous) {
      matches.back().end = i + c.num_bytes;
    } else if (kind != 0) {
      matches.push_back({i, i + c.num_bytes});
    }
    previous = kind;
    i += c.num_bytes;
  }
}

std::unique_ptr<const PreTokenizerStep> parse_split(const json::Object& object) {
  const std::string& where = object.where();
  const json::Object pattern = object.object_at("pattern");
  const DelimiterBehavior behavior = parse_behavior(object.string_at("behavior"), where);
  const bool invert = object.bool_or("invert", false);
  if (pattern.has("String")) {
    std::string literal = pattern.string_at("String");
    if (literal.empty()) fail(ErrorKind::kModel, "{}: Split at an empty string", where);
    return std::make_unique<DelimiterSplit>(find_literal(std::move(literal)), behavior, invert);
  }
  const std::string text = pattern.string_at("Regex");
  const bool keeps_matches =
      invert ? behavior == DelimiterBehavior::kRemoved : behavior == DelimiterBehavior::kIsolated;
  if (const auto known = find_split_pattern(text); known && keeps_matches) {
    return std::make_unique<KnownSplit>(*known);
  }
  // std::function copies its callable; the copies share one compiled, immutable pattern.
  const auto regex = std::make_shared<const Regex>(text, where);
  return std::make_unique<DelimiterSplit>(
      [regex](std::string_view whole, Span range, std::vector<Span>& matches) {
        regex->find_all(whole, range, matches);
      },
      behavior, invert);
}

}  // namespace

void cut(Span range, const std::vector<Span>& matches, DelimiterBehavior behavior, bool invert,
         std::vector<Span>& words) {
  std::vector<Part> parts;
  cut_parts(range, matches, invert, parts);
  switch (behavior) {
    case DelimiterBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_match) words.push_back(part.span);
      }
      return;
    case DelimiterBehavior::kIsolated:
      for (const Part& part : parts)
        words.push_back(part.span);
      return;
    case DelimiterBehavior::kContiguous:
      return join(parts, std::equal_to<>(), words);
    case DelimiterBehavior::kMergedWithPrevious:
      return join(
          parts, [](bool is_match, bool previous) { return is_match && !previous; }, words);
    case DelimiterBehavior::kMergedWithNext:
      return merge_with_next(parts, words);
  }
}

std::unique_ptr<const PreTokenizerStep> parse_split_step(const boost::json::value& json,
                                                         const std::string& where) {
  const json::Object object(json, where);
  const std::string type = object.string_at("type");
  const auto split = [](DelimiterSplit::Find find, DelimiterBehavior behavior,
                        bool invert = false) {
    return std::make_unique<const DelimiterSplit>(std::move(find), behavior, invert);
  };
  if (type == "Split") return parse_split(object);
  if (type == "Digits") {
    return split(find_chars([](uint32_t, uint8_t bits) { return (bits & kDigit) != 0; }),
                 object.bool_or("individual_digits", false) ? DelimiterBehavior::kIsolated
                                                            : DelimiterBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    return split(find_chars([](uint32_t, uint8_t bits) { return (bits & kPunctuation) != 0; }),
                 parse_behavior(object.string_or("behavior", "Isolated"), where));
  }
  if (type == "WhitespaceSplit") {
    return split(find_chars([](uint32_t, uint8_t bits) { return (bits & kSpace) != 0; }),
                 DelimiterBehavior::kRemoved);
  }
  if (type == "Whitespace") {
    return split(find_whitespace_words, DelimiterBehavior::kRemoved, true);
  }
  if (type == "CharDelimiterSplit" || type == "Delimiter") {
    std::string delimiter = object.string_at("delimiter");
    if (delimiter.empty()) fail(ErrorKind::kModel, "{}: an empty delimiter", where);
    return split(find_literal(std::move(delimiter)), DelimiterBehavior::kRemoved);
  }
  return nullptr;
}

}  // namespace encore::text
