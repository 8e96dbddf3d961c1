// Regular expressions of tokenizer files, run by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/split_pattern.h"

namespace encore::text {

// A compiled pattern. Patterns are written for Oniguruma; what PCRE2 spells differently is
// translated, and what it cannot express is refused.
// Threads: immutable; any number of threads may match at once.
class Regex {
 public:
  // Errors: kModel when the pattern does not compile, kUnsupported when it needs what PCRE2 lacks.
  // `where` names the source in messages.
  Regex(std::string_view pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Appends every match within text[range], leftmost first, without overlap; the characters outside
  // the range are not seen by lookaround. REQUIRES: valid UTF-8.
  // Errors: kUnsupported when the pattern needs more backtracking than is allowed.
  void find_all(std::string_view text, Span range, std::vector<Span>& matches) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

// `pattern` in PCRE2's spelling. Errors: kUnsupported.
std::string translate_regex(std::string_view pattern, const std::string& where);

}  // namespace encore::text
