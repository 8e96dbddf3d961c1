// The pre-tokenizer steps that only cut a word at delimiters, and keep or drop the delimiters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/pre_tokenizer.h"

namespace boost::json {
class value;
}

namespace encore::text {

// Says where the parts of a word that a pattern matched (the delimiters) go.
enum class DelimiterBehavior {
  kRemoved,
  kIsolated,            // each match is a word
  kMergedWithPrevious,  // each match joins the part before it, unless that part is a match
  kMergedWithNext,      // each match joins the part behind it, unless that part is a match
  kContiguous,          // neighbouring matches are one word
};

// Cuts `range` at `matches` and appends the words. Where `invert`, the gaps between the matches
// count as the matches. REQUIRES: matches ascend, do not overlap and lie within `range`.
void cut(Span range, const std::vector<Span>& matches, DelimiterBehavior behavior, bool invert,
         std::vector<Span>& words);

// Parses a step of kind Split, Digits, Punctuation, Whitespace, WhitespaceSplit or
// CharDelimiterSplit. Returns null for another kind. Errors: kModel on a bad entry, kUnsupported on
// a pattern that cannot be matched.
std::unique_ptr<const PreTokenizerStep> parse_split_step(const boost::json::value& json,
                                                         const std::string& where);

}  // namespace encore::text
