// Gives regular expressions for the string formats of JSON Schema.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace encore::grammar {

// Returns a regular expression for a format. Every text that matches it as a whole has the format;
// rare spellings of the format may be missing. Returns an empty text for a format that does not
// restrict texts, and nothing for an unknown format.
std::optional<std::string> format_pattern(std::string_view name);

}  // namespace encore::grammar
