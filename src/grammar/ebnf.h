// Writes grammars in the form that the library xgrammar reads: rules in extended Backus-Naur form.
#pragma once

#include <string>
#include <string_view>

#include "grammar/automaton.h"

namespace encore::grammar {

// Returns a text as a quoted literal of a grammar.
std::string ebnf_literal(std::string_view text);
// Returns a set of characters as a character class of a grammar, such as [a-z]. REQUIRES: the set
// has at least one character.
std::string ebnf_class(const CodeSet& set);

// Returns the rules of a grammar for the texts that an automaton accepts. There is one rule for
// each state, named by `name` and the state's number; the rule `name`0 matches all of the texts.
std::string text_rules(const Automaton& automaton, const std::string& name);
// Returns the rules of a grammar for the texts that an automaton accepts, written as JSON strings
// without the opening quotation mark but with the closing one. A character may be written as itself
// or as any of its escapes. The rules end with a lookahead, which demands that one of , } ] :
// follows the string, with white space allowed before it.
std::string json_string_rules(const Automaton& automaton, const std::string& name);

}  // namespace encore::grammar
