// Visits the lines of a text file together with their numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace encore::traffic {

// Returns `text` without a byte order mark at its start.
inline std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

// Returns the text without whitespace at both ends.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kWhitespace = " \t\r\n";
  const size_t first = text.find_first_not_of(kWhitespace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhitespace) + 1 - first);
}

// Calls `visit(line, number)` for every line that is not blank. The line is trimmed; the first line
// of the text has number 1.
template <typename Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!trimmed(line).empty()) visit(trimmed(line), number);
  }
}

}  // namespace encore::traffic
