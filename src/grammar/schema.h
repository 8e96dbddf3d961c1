// Converts JSON schemas to grammars.
#pragma once

#include <string>

namespace encore::grammar {

// The most white-space characters in a row that a grammar allows between the parts of a JSON text.
// Without a limit, some models would generate white space forever.
inline constexpr int kMaxWhiteSpace = 16;

// Returns the rules of a grammar in extended Backus-Naur form, whose first rule is `root`. Every
// text that it generates is a value that fits the schema (JSON Schema 2020-12 or draft 7).
// Properties come in the order in which the schema names them.
// `is_closed`: where the schema says nothing about other properties or items, objects and arrays
// have only those that the schema names.
// Errors: kUnsupported and kModel, which name the keyword and its place, for text that is not a
// schema, for a schema that no value fits, and for keywords whose effect a grammar cannot express.
std::string schema_grammar(const std::string& schema, bool is_closed);

}  // namespace encore::grammar
