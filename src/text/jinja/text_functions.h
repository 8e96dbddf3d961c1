// Text functions that both methods and filters of text use.
#pragma once

#include <string>

#include "text/jinja/heap.h"

namespace encore::text::jinja {

// Applies Python's str.replace(), at the first `count` places where `count` is not negative.
// REQUIRES: `text` is a text.
Value replace_text(const Value& text, const std::string& old, const std::string& with, Int count,
                   Heap& heap);
// Returns the text padded with `fill` to `width` characters. `align` says where the padding goes:
// '<' behind the text, '>' in front of it, '^' on both sides. Errors: RenderFailure when `fill` is
// not one character. REQUIRES: `text` is a text.
Value align_text(const Value& text, Int width, const std::string& fill, char align, Heap& heap);
// Returns whether the text has cased characters and all of them are upper case (`upper`) or lower
// case.
bool has_case(const std::string& text, bool upper, Budget& budget);
// Returns Python's dict.keys(), dict.values() or dict.items(), as `kind` says.
Value view_of(const Mapping& mapping, Sequence::Kind kind, Heap& heap);

}  // namespace encore::text::jinja
