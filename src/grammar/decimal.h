// Numbers of JSON as texts: which decimal numbers keep a bound or are multiples of another.
#pragma once

#include "base/json.h"
#include "grammar/automaton.h"

namespace encore::grammar {

// All of these have the texts -?(0|[1-9][0-9]*)(\.[0-9]+)? that they say, in each spelling of a value.
// Errors: kUnsupported for a number that is too large or too fine to count to.
Automaton decimals();
Automaton whole_decimals();                                            // 5, 5.0
Automaton decimals_without_fraction();                                 // 5
Automaton decimals_from(const json::value& bound, bool is_exclusive);  // at least, or more than
Automaton decimals_to(const json::value& bound, bool is_exclusive);
Automaton decimals_equal(const json::value& value);
Automaton decimal_multiples(const json::value& divisor);  // REQUIRES: more than 0
// Those decimals that `numbers` lacks.
Automaton other_decimals(const Automaton& numbers);
// The shortest text without an exponent.
std::string decimal_text(const json::value& number);
// A value as JSON without white space, its numbers as decimal texts.
std::string compact_text(const json::value& value);

}  // namespace encore::grammar
