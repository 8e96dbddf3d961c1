// Describes sets of JSON numbers by their texts: the decimal numbers that keep a bound, or are
// multiples of another number.
#pragma once

#include "base/json.h"
#include "grammar/automaton.h"

namespace encore::grammar {

// Each of these accepts the texts -?(0|[1-9][0-9]*)(\.[0-9]+)? of its numbers, in every spelling of
// a value. Errors: kUnsupported for a number that is too large or too fine to count to.
Automaton decimals();
Automaton whole_decimals();                                            // 5, 5.0
Automaton decimals_without_fraction();                                 // 5
Automaton decimals_from(const json::value& bound, bool is_exclusive);  // at least, or more than
Automaton decimals_to(const json::value& bound, bool is_exclusive);
Automaton decimals_equal(const json::value& value);
Automaton decimal_multiples(const json::value& divisor);  // REQUIRES: more than 0
// The decimals that `numbers` does not accept.
Automaton other_decimals(const Automaton& numbers);
// The shortest text of a number, without an exponent.
std::string decimal_text(const json::value& number);
// A value as JSON without white space, its numbers as decimal texts.
std::string compact_text(const json::value& value);

}  // namespace encore::grammar
