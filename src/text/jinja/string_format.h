// Formats text in Python's two ways: 'a %s' % value and 'a {}'.format(value).
#pragma once

#include "text/jinja/arguments.h"
#include "text/jinja/heap.h"

namespace encore::text::jinja {

// Formats as Python's %. `values` is a tuple of values, a dict for %(name)s, or one value. Errors:
// RenderFailure where text and values do not match.
Value percent_format(const Text& format, const Value& values, Heap& heap);
// Formats as Python's str.format. Errors: RenderFailure where text and arguments do not match.
Value brace_format(const Text& format, const Arguments& arguments, Heap& heap);

}  // namespace encore::text::jinja
