// Describes sets of JSON numbers by automata over their texts. A set consists, for example, of the
// numbers up to a bound, or of the multiples of a number.
#pragma once

#include "base/json.h"
#include "grammar/automaton.h"

namespace encore::grammar {

// Each function below returns an automaton that accepts the numbers of a set. A number's text has
// the form -?(0|[1-9][0-9]*)(\.[0-9]+)?, and every spelling of this form is accepted. Errors:
// kUnsupported if a given number has too many digits for an automaton.
Automaton decimals();
Automaton whole_decimals();             // whole numbers, written as 5 or 5.0
Automaton decimals_without_fraction();  // whole numbers, written as 5 only
Automaton decimals_from(const json::value& bound, bool is_exclusive);  // >= bound, or > bound
Automaton decimals_to(const json::value& bound, bool is_exclusive);
Automaton decimals_equal(const json::value& value);
Automaton decimal_multiples(const json::value& divisor);  // REQUIRES: more than 0
// Returns the automaton of those numbers of decimals() that `numbers` does not accept.
Automaton other_decimals(const Automaton& numbers);
// Returns the shortest text of the number among those without an exponent.
std::string decimal_text(const json::value& number);
// Returns a value as JSON without white space, in which numbers have no exponents.
std::string compact_text(const json::value& value);

}  // namespace encore::grammar
