// Rewrites text before it is split into words, by the normalizer of a tokenizer file.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace boost::json {
class value;
}

namespace encore::text {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Rewrites valid UTF-8 to a Unicode normalization form. Time: linear, except that runs of combining
// marks are sorted.
void normalize_unicode(UnicodeForm form, std::string& text);

// Turns each character to lower case, without regard to its neighbours.
void lowercase(std::string& text);

// A normalizer is a list of rewrites. Threads: immutable after parse.
class Normalizer {
 public:
  Normalizer() = default;

  // Parses `json`, the "normalizer" of a tokenizer file; null means that there is none. `where`
  // names it in messages. Errors: kModel on a bad entry, kUnsupported on a kind that Encore does
  // not have.
  static Normalizer parse(const boost::json::value& json, const std::string& where);

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // Applies the rewrites to `text` in order. REQUIRES: valid UTF-8.
  void apply(std::string& text) const;

 private:
  using Step = std::function<void(std::string&)>;

  std::vector<Step> steps_;
};

// Parses an entry of kind Replace, which normalizers and decoders have. Returns a function that
// replaces each match of a literal or a regular expression by the entry's `content`. Errors: as
// Normalizer::parse.
std::function<void(std::string&)> parse_replace(const boost::json::value& json,
                                                const std::string& where);

}  // namespace encore::text
