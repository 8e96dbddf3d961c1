#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace encore::text {

// Updates the length of the longest prefix of the stop string with which the text ends. Source: the
// string search of Knuth, Morris and Pratt.
void StopStrings::Pattern::push(char byte) {
  if (length == text.size()) length = fallback[length];
  while (length > 0 && text[length] != byte)
    length = fallback[length];
  length += text[length] == byte ? 1 : 0;
}

StopStrings::StopStrings(std::vector<std::string> strings, bool include_in_output)
    : include_in_output_(include_in_output) {
  for (std::string& string : strings) {
    ENCORE_CHECK(!string.empty());
    Pattern pattern{std::move(string), {0, 0}};
    const std::string& text = pattern.text;
    for (size_t end = 1; end < text.size(); ++end) {
      size_t length = pattern.fallback[end];
      while (length > 0 && text[length] != text[end])
        length = pattern.fallback[length];
      pattern.fallback.push_back(text[length] == text[end] ? length + 1 : 0);
    }
    patterns_.push_back(std::move(pattern));
  }
}

std::string StopStrings::push(std::string_view text) {
  if (matched_) return "";
  if (patterns_.empty()) return std::string(text);
  for (const char byte : text) {
    held_.push_back(byte);
    size_t longest = 0;  // length of the longest stop string that is complete
    for (Pattern& pattern : patterns_) {
      pattern.push(byte);
      if (pattern.length < pattern.text.size() || pattern.length <= longest) continue;
      longest = pattern.length;
      matched_ = pattern.text;
    }
    if (!matched_) continue;
    if (!include_in_output_) held_.resize(held_.size() - longest);
    return std::exchange(held_, "");
  }
  size_t waits = 0;
  for (const Pattern& pattern : patterns_)
    waits = std::max(waits, pattern.length);
  std::string ready = held_.substr(0, held_.size() - waits);
  held_.erase(0, ready.size());
  return ready;
}

std::string StopStrings::finish() {
  return std::exchange(held_, "");
}

}  // namespace encore::text
