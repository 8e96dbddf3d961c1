// Reads text word by word, for rows of ops and rules of passes.
#pragma once

#include <algorithm>
#include <cctype>
#include <string_view>

namespace encore::ir {

// Removes the letters, digits and underscores at the beginning of `text` and returns them. There
// may be none.
inline std::string_view take_word(std::string_view& text) {
  const auto end = std::ranges::find_if_not(
      text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  const std::string_view word = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  return word;
}

// Removes `token` from the beginning of `text`. Returns false if the text does not begin with it.
inline bool accept(std::string_view& text, std::string_view token) {
  if (!text.starts_with(token)) return false;
  text.remove_prefix(token.size());
  return true;
}

}  // namespace encore::ir
