// Writes grammars in the form that the grammar library (xgrammar) reads: rules in extended
// Backus-Naur form.
#pragma once

#include <string>
#include <string_view>

#include "grammar/automaton.h"

namespace encore::grammar {

// Returns a text as a quoted literal.
std::string ebnf_literal(std::string_view text);
// Returns a set of characters as a class such as [a-z]. REQUIRES: the set has at least one
// character.
std::string ebnf_class(const CodeSet& set);

// Returns rules for the texts of an automaton. There is one rule for each state, named by `name`
// and the state's number; the rule `name`0 matches all of the texts.
std::string text_rules(const Automaton& automaton, const std::string& name);
// Returns rules for the texts of an automaton as JSON strings, without the opening quotation mark
// but with the closing one. A character may be written as itself or as any of its escapes. A
// lookahead demands that white space and one of , } ] : follow the string.
std::string json_string_rules(const Automaton& automaton, const std::string& name);

}  // namespace encore::grammar
