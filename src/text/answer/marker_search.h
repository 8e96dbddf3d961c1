// Finds a marker in a text that comes byte by byte.
#pragma once

#include <string>
#include <string_view>

namespace encore::text {

// Returns whether the byte is a space, a tab or a line break.
bool is_space(char byte);

// Passes text on up to a marker. It holds back white space, and text that may be the marker's
// start, until it is known whether the marker follows.
class MarkerSearch {
 public:
  // Searches for `marker`. REQUIRES: the marker's first byte occurs in it once, and it has no white
  // space.
  explicit MarkerSearch(std::string_view marker) : marker_(marker) {}

  // Appends to `out` the text that is certainly in front of the marker and of the white space
  // before the marker. Returns whether the marker is complete; the search then starts anew, and
  // keeps the white space.
  bool push(char byte, std::string& out);
  // Returns whether text that may be the marker's start is held back.
  [[nodiscard]] bool is_within() const { return num_matched_ > 0; }
  // Returns the white space that the search holds back, and forgets it.
  std::string take_spaces();
  // Appends all text that is held back to `out`.
  void flush(std::string& out);

 private:
  std::string marker_;
  std::string spaces_;      // white space that is held back
  size_t num_matched_ = 0;  // bytes of the marker that matched, behind the spaces
};

}  // namespace encore::text
