// Runs the regular expressions of tokenizer files by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/split_pattern.h"

namespace encore::text {

// A compiled pattern. Tokenizer files write patterns for Oniguruma; the constructor translates the
// syntax that PCRE2 spells differently, and refuses the syntax that PCRE2 cannot express. Threads:
// immutable; any number of threads may match at once.
class Regex {
 public:
  // Compiles a pattern. `where` names the source in messages. Errors: kModel when the pattern does
  // not compile, kUnsupported when it needs a feature that PCRE2 lacks.
  Regex(std::string_view pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Appends every match within text[range] from left to right. Matches do not overlap, and
  // lookaround does not see the characters outside the range. REQUIRES: valid UTF-8. Errors:
  // kUnsupported when the pattern needs more backtracking than is allowed.
  void find_all(std::string_view text, Span range, std::vector<Span>& matches) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

// Returns an Oniguruma `pattern` in PCRE2's spelling. Errors: kUnsupported where PCRE2 cannot
// express it.
std::string translate_regex(std::string_view pattern, const std::string& where);

}  // namespace encore::text
