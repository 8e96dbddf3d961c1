// The filters, tests, functions and methods of templates, by name.
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace encore::text::jinja {

// The built-in of that name; nullptr where there is none. A filter or a test gets the value that it
// is applied to as `self`, a method its object; a test returns a boolean.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
Builtin find_function(std::string_view name);
// The methods of Python that change their object are not there, as in a sandbox.
Builtin find_method(const Value& object, std::string_view name);
// Does Python's type of the object have an attribute of that name which templates may not use?
bool is_forbidden_member(const Value& object, std::string_view name);

// A table of built-ins.
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

// Filters of sequences; find_filter finds them too.
Builtin find_sequence_filter(std::string_view name);
// Methods of str; find_method finds them too.
Builtin find_text_method(std::string_view name);

}  // namespace encore::text::jinja
