// Turns values into text, as Python's str() and repr(), and as JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/heap.h"

namespace encore::text::jinja {

// Appends Python's str() of the value.
void append_str(const Value& value, TextBuilder& out);
// Appends Python's repr() of the value. Errors: RenderFailure of kLimit where values nest too deep.
void append_repr(const Value& value, TextBuilder& out, int depth = 0);
void append_repr(std::string_view text, TextBuilder& out);
// to_text() returns Python's str() of a value as a value, and does not copy a value that is text
// already. The other functions return Python's str() or repr() as a string.
Value to_text(const Value& value, Heap& heap);
std::string str(const Value& value, Heap& heap);
std::string repr(const Value& value, Heap& heap);
std::string int_str(Int number);
std::string float_repr(double number);

// The parameters of Python's json.dumps that templates can set.
struct JsonStyle {
  bool ascii = false;  // escapes every character outside ASCII
  bool sorts_keys = false;
  std::optional<std::string> indent;  // nullopt: writes all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Appends the value as JSON. Errors: RenderFailure for values that JSON does not have, such as an
// undefined value.
void append_json(const Value& value, const JsonStyle& style, TextBuilder& out, int depth = 0);

// Returns `text` with the characters & < > ' and " replaced by their HTML entities.
std::string escape_html(std::string_view text);

}  // namespace encore::text::jinja
