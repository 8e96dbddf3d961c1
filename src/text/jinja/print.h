// Values as text: Python's str() and repr(), and JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/heap.h"

namespace encore::text::jinja {

// Appends Python's str() of the value.
void append_str(const Value& value, TextBuilder& out);
// Appends Python's repr(). Errors: RenderFailure of kLimit where values nest too deep.
void append_repr(const Value& value, TextBuilder& out, int depth = 0);
void append_repr(std::string_view text, TextBuilder& out);
// These return the text as a value or as a string; to_text() does not copy a value that is text
// already.
Value to_text(const Value& value, Heap& heap);
std::string str(const Value& value, Heap& heap);
std::string repr(const Value& value, Heap& heap);
std::string int_str(Int number);
std::string float_repr(double number);

// The parameters of json.dumps that templates can set.
struct JsonStyle {
  bool ascii = false;  // escapes every other character
  bool sorts_keys = false;
  std::optional<std::string> indent;  // nullopt: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Errors: RenderFailure for what JSON does not have, such as an undefined value.
void append_json(const Value& value, const JsonStyle& style, TextBuilder& out, int depth = 0);

// `text` with &, <, >, ' and " as HTML has them.
std::string escape_html(std::string_view text);

}  // namespace encore::text::jinja
