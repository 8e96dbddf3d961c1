// Functions on the characters of UTF-8 text, with the results of Python's str. They take and return
// valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace encore::text::jinja {

// Returns whether Python's str.isspace() holds for the character.
bool is_space(uint32_t code_point);
// Returns whether Python's repr() shows the character as it is, without an escape.
bool is_printable(uint32_t code_point);
bool is_upper(uint32_t code_point);
bool is_lower(uint32_t code_point);
bool is_alpha(uint32_t code_point);
bool is_digit(uint32_t code_point);

// Returns the number of characters of the text.
size_t length(std::string_view text);
// Returns the byte at which character `index` starts, or the text's size where the text has fewer
// characters.
size_t byte_of(std::string_view text, size_t index);

// to_upper() and to_lower() turn each character of the text into one character of that case. The
// exception is the sharp s, whose upper case is SS.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
// Turns the first character of the text to upper case, and the others to lower case.
std::string capitalize(std::string_view text);

// strip_left(), strip_right() and strip() return the text without the characters of `drop` at its
// start, at its end, or at both. Where `drop` is nullptr, they remove whitespace.
std::string_view strip_left(std::string_view text, const std::string* drop = nullptr);
std::string_view strip_right(std::string_view text, const std::string* drop = nullptr);
std::string_view strip(std::string_view text, const std::string* drop = nullptr);

// The rendering's budget counts one byte of searched text as this many bytes of copied text.
inline constexpr size_t kSearchCost = 8;

// Returns the first place of `part` in `text` at or behind `from`; npos where `part` does not occur
// there. Time: linear.
size_t find_part(std::string_view text, std::string_view part, size_t from = 0);

// Returns the lines of Python's str.splitlines(). The lines have their line ends only where
// `keep_ends`.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace encore::text::jinja
