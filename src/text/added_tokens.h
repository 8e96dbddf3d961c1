// Tokens that are found in the text before anything else looks at it: special and other added
// tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/split_pattern.h"

namespace encore::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // left out when decoding for people
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // takes the spaces behind it
  bool normalized = false;   // matches in the normalized text
};

// A part of a text: an added token, or what lies between two.
struct Segment {
  Span span;
  int32_t token = -1;  // -1: text
};

// Finds added tokens in a text, the longest at each place, leftmost first.
// Time: the text's bytes times the longest token's. Threads: immutable once filled.
class AddedTokenMatcher {
 public:
  // `pattern` is the text to find, the content unless it is normalized. Empty patterns never match.
  void add(const AddedToken& token, std::string_view pattern);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  // Appends segments that cover `text`. REQUIRES: valid UTF-8.
  void split(std::string_view text, std::vector<Segment>& segments) const;

 private:
  struct Node {
    std::unordered_map<uint8_t, int32_t> children;
    int32_t token = -1;  // index into tokens_
  };
  struct Match {
    size_t end = 0;
    int32_t token = -1;
  };

  [[nodiscard]] size_t next_start(std::string_view text, size_t from) const;
  [[nodiscard]] Match match_at(std::string_view text, size_t begin) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<AddedToken> tokens_;
  std::array<int32_t, 256> first_{};  // by first byte: the node behind it, or 0
  uint8_t only_first_ = 0;            // the first byte of all tokens, while num_firsts_ is 1
  int num_firsts_ = 0;
};

}  // namespace encore::text
