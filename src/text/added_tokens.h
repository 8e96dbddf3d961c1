// Finds special and other added tokens in a text, before the pre-tokenizer splits the text into
// words.
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
  bool special = false;      // decoding for people leaves the token out
  bool single_word = false;  // matches only where it touches no word
  bool lstrip = false;       // the match takes in the spaces before the token
  bool rstrip = false;       // the match takes in the spaces behind the token
  bool normalized = false;   // the token is searched in the normalized text
};

// A part of a text: either an added token, or the text between two added tokens.
struct Segment {
  Span span;
  int32_t token = -1;  // -1: the part is plain text
};

// Finds added tokens in a text: from left to right, the longest token at each place. Time: the
// text's bytes times the longest token's. Threads: immutable once filled.
class AddedTokenMatcher {
 public:
  // Adds a token that is found where `pattern` stands: its content, or its normalized content. An
  // empty pattern never matches.
  void add(const AddedToken& token, std::string_view pattern);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  // Appends the segments into which the added tokens divide `text`. REQUIRES: valid UTF-8.
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
  std::array<int32_t, 256> first_{};  // by first byte of a token: the node behind that byte, or 0
  uint8_t only_first_ = 0;            // the first byte of all tokens, while num_firsts_ is 1
  int num_firsts_ = 0;
};

}  // namespace encore::text
