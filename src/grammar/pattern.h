// Regular expressions of ECMA-262, which JSON Schema writes its patterns in, as automata.
#pragma once

#include <string_view>

#include "grammar/automaton.h"

namespace encore::grammar {

enum class Extent : uint8_t {
  kSearch,  // texts with a match somewhere: a pattern of JSON Schema
  kWhole,   // texts that match as a whole
};

// The texts that a regular expression (with the flag u, or without where that differs in nothing) stands for.
// Properties such as \p{L} are general categories.
// Errors: kUnsupported for what is no regular expression, or has lookbehind, a back-reference, or lookahead that looks at
// what is in front of it.
Automaton pattern_automaton(std::string_view pattern, Extent extent);

// Errors: kUnsupported for what is no regular expression, or has lookbehind or a back-reference.
void check_pattern(std::string_view pattern);

// Does it have what only pattern_automaton() does right: \p, \b or lookahead?
bool needs_automaton(std::string_view pattern);

}  // namespace encore::grammar
