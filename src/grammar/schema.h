// JSON schemas, put so that the library's masks are quick.
#pragma once

#include <string>

namespace encore::grammar {

// A schema for the same values, where strings that are bounded by a length fit a pattern instead. Of a
// pattern the library knows the masks of every place once it has compiled it; of a length it tries,
// for each mask, all tokens that may reach beyond it. Such a string may have escapes, too.
// REQUIRES: JSON. Time: linear.
std::string with_lengths_as_patterns(const std::string& schema);

}  // namespace encore::grammar
