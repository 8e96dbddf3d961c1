// Finds the filters, tests, functions and methods of templates by name.
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace encore::text::jinja {

// find_filter(), find_test() and find_function() return the built-in of that name; nullptr where
// there is none. A filter or a test gets the value that it is applied to as `self`, and a method
// gets its object. A test returns a boolean.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
Builtin find_function(std::string_view name);
// Returns a method of the object; nullptr where there is none. Methods that change their object do
// not exist, as in Jinja's sandbox.
Builtin find_method(const Value& object, std::string_view name);
// Returns whether Python's type of the object has an attribute of that name which templates may not
// use.
bool is_forbidden_member(const Value& object, std::string_view name);

// A row of a table of built-ins.
struct NamedBuiltin {
  std::string_view name;
  Builtin builtin;
};

template <size_t size>
Builtin find_in(const NamedBuiltin (&table)[size], std::string_view name) {
  for (const NamedBuiltin& entry : table)
    if (entry.name == name) return entry.builtin;
  return nullptr;
}

// Returns a filter of sequences. find_filter() finds it too.
Builtin find_sequence_filter(std::string_view name);
// Returns a method of str. find_method() finds it too.
Builtin find_text_method(std::string_view name);

}  // namespace encore::text::jinja
