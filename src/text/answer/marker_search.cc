#include "text/answer/marker_search.h"

#include <utility>

namespace encore::text {

bool is_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

bool MarkerSearch::push(char byte, std::string& out) {
  if (byte == marker_[num_matched_]) {
    ++num_matched_;
    if (num_matched_ < marker_.size()) return false;
    num_matched_ = 0;
    return true;
  }
  if (num_matched_ > 0) {
    flush(out);
    return push(byte, out);
  }
  if (is_space(byte)) {
    spaces_ += byte;
    return false;
  }
  flush(out);
  out += byte;
  return false;
}

std::string MarkerSearch::take_spaces() {
  return std::exchange(spaces_, "");
}

void MarkerSearch::flush(std::string& out) {
  out += take_spaces();
  out.append(marker_, 0, num_matched_);
  num_matched_ = 0;
}

}  // namespace encore::text
