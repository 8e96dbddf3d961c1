// The formats of strings that JSON Schema names, as regular expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace encore::grammar {

// A regular expression that only texts of the format match as a whole; it may leave out rare spellings. Empty where the
// format says nothing about a text; nothing for a format that is not known.
std::optional<std::string> format_pattern(std::string_view name);

}  // namespace encore::grammar
