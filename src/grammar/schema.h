// JSON schemas as grammars.
#pragma once

#include <string>

namespace encore::grammar {

// White space in a row between the values of JSON: a model that likes it would go on for ever.
inline constexpr int kMaxWhiteSpace = 16;

// The rules of a grammar, in extended Backus-Naur form with a first rule `root`, all of whose texts are values that fit
// the schema (JSON Schema 2020-12 or draft 7). Properties come in the order in which the schema names them.
// `is_closed`: an object has no properties, and an array no items, but those that the schema names, where it says
// nothing of others.
// Errors: kUnsupported and kModel, which name the keyword and its place, for a schema that is none, that nothing fits,
// or that has a keyword whose effect no grammar of ours has.
std::string schema_grammar(const std::string& schema, bool is_closed);

}  // namespace encore::grammar
