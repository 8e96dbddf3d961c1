// Converts regular expressions of ECMA-262, the dialect of JSON Schema's patterns, to automata.
#pragma once

#include <string_view>

#include "grammar/automaton.h"

namespace encore::grammar {

enum class Extent : uint8_t {
  kSearch,  // accepts texts with a match anywhere, as JSON Schema's patterns do
  kWhole,   // accepts texts that match as a whole
};

// Returns the automaton of the texts that a regular expression matches. The expression is read as
// with the flag u (Unicode); an expression that is valid only without this flag is not supported.
// Properties such as \p{L} may be general categories only. Errors: kUnsupported for text that is
// not a regular expression, and for lookbehind, back-references, and lookahead that depends on
// preceding text.
Automaton pattern_automaton(std::string_view pattern, Extent extent);

// Checks the syntax of a regular expression. Errors: kUnsupported for text that is not a regular
// expression, and for lookbehind and back-references.
void check_pattern(std::string_view pattern);

// Returns whether the pattern has \p, \P, \b, \B or lookahead. xgrammar does not handle these
// correctly, so such a pattern must be converted by pattern_automaton().
bool needs_automaton(std::string_view pattern);

}  // namespace encore::grammar
