// Finds a marker in a text that comes byte by byte.
#pragma once

#include <string>
#include <string_view>

namespace encore::text {

// Is the byte a space, a tab or a line break?
bool is_space(char byte);

// Lets text through up to a marker. White space waits until it is known whether the marker follows,
// and so does what may be the marker's start.
class MarkerSearch {
 public:
  // REQUIRES: the marker's first byte occurs in it once, and it has no white space.
  explicit MarkerSearch(std::string_view marker) : marker_(marker) {}

  // Appends to `out` the text that is certainly in front of the marker and its white space. Returns
  // whether the marker is complete; the search then starts anew, but for the white space.
  bool push(char byte, std::string& out);
  // Does what may be the marker's start wait?
  [[nodiscard]] bool is_within() const { return num_matched_ > 0; }
  // Returns the white space that waits, and forgets it.
  std::string take_spaces();
  // Appends all that waits to `out`.
  void flush(std::string& out);

 private:
  std::string marker_;
  std::string spaces_;      // that wait
  size_t num_matched_ = 0;  // bytes of the marker, behind the spaces
};

}  // namespace encore::text
