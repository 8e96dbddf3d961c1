// Grammars as the library reads them: rules in extended Backus-Naur form.
#pragma once

#include <string>
#include <string_view>

#include "grammar/automaton.h"

namespace encore::grammar {

// Writes a text as a quoted literal.
std::string ebnf_literal(std::string_view text);
// Writes a set of characters as a class such as [a-z]. REQUIRES: the set has at least one
// character.
std::string ebnf_class(const CodeSet& set);

// Rules for the texts of an automaton, a rule a state, each named `name` and its number: `name0` is all of them.
std::string text_rules(const Automaton& automaton, const std::string& name);
// Rules for such texts as the inside of a string of JSON and its closing quotation mark: each character by itself or
// by an escape, in every spelling. Behind a string comes white space and one of , } ] :
std::string json_string_rules(const Automaton& automaton, const std::string& name);

}  // namespace encore::grammar
