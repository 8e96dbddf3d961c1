// Characters of UTF-8 text as Python's str has them. All take and give valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace encore::text::jinja {

// Python's str.isspace.
bool is_space(uint32_t code_point);
// Does repr() show the character as it is?
bool is_printable(uint32_t code_point);
bool is_upper(uint32_t code_point);
bool is_lower(uint32_t code_point);
bool is_alpha(uint32_t code_point);
bool is_digit(uint32_t code_point);

// Number of characters.
size_t length(std::string_view text);
// The byte at which character `index` starts, or the text's size where it has fewer.
size_t byte_of(std::string_view text, size_t index);

// Changes the case, one character to one, but for the sharp s, whose upper case is SS.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
// Turns the first character to upper case, the others to lower case.
std::string capitalize(std::string_view text);

// The text without the characters of `drop` at an end; without spaces where `drop` is nullptr.
std::string_view strip_left(std::string_view text, const std::string* drop = nullptr);
std::string_view strip_right(std::string_view text, const std::string* drop = nullptr);
std::string_view strip(std::string_view text, const std::string* drop = nullptr);

// A byte searched takes as long as so many bytes copied.
inline constexpr size_t kSearchCost = 8;

// The place of `part` in `text` at or behind `from`; npos where it is not. Time: linear.
size_t find_part(std::string_view text, std::string_view part, size_t from = 0);

// Python's str.splitlines, without the ends of the lines unless `keep_ends`.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace encore::text::jinja
