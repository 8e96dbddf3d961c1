// The pre-tokenizer steps that only cut a word at delimiters, and keep or drop these.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/pre_tokenizer.h"

namespace boost::json {
class value;
}

namespace encore::text {

// Decides where the parts of a word go that a pattern matched.
enum class DelimiterBehavior {
  kRemoved,
  kIsolated,            // each is a word
  kMergedWithPrevious,  // each joins the part before it, unless that is a match as well
  kMergedWithNext,      // each joins the part behind it, unless that is a match as well
  kContiguous,          // neighbouring matches are one word
};

// Cuts `range` at `matches` and appends the words. REQUIRES: matches ascend, do not overlap and lie
// within `range`. `invert` takes what did not match for the matches.
void cut(Span range, const std::vector<Span>& matches, DelimiterBehavior behavior, bool invert,
         std::vector<Span>& words);

// Split, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit; null for another
// kind. Errors: kModel on a bad entry, kUnsupported on a pattern that cannot be matched.
std::unique_ptr<const PreTokenizerStep> parse_split_step(const boost::json::value& json,
                                                         const std::string& where);

}  // namespace encore::text
