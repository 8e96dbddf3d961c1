// Text functions that both methods and filters of text use.
#pragma once

#include <string>

#include "text/jinja/heap.h"

namespace encore::text::jinja {

// Python's str.replace, of the first `count` places where count is not negative. REQUIRES: a text.
Value replace_text(const Value& text, const std::string& old, const std::string& with, Int count,
                   Heap& heap);
// The text filled up to `width` characters: '<' behind it, '>' in front, '^' on both sides.
// Errors: RenderFailure when `fill` is not one character. REQUIRES: a text.
Value align_text(const Value& text, Int width, const std::string& fill, char align, Heap& heap);
// Does the text have cased characters, and are all of them upper, or all lower case?
bool has_case(const std::string& text, bool upper, Budget& budget);
// dict.keys(), .values() or .items().
Value view_of(const Mapping& mapping, Sequence::Kind kind, Heap& heap);

}  // namespace encore::text::jinja
