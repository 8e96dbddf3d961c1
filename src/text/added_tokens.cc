#include "text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "text/unicode.h"

namespace encore::text {

namespace {

bool is_class(uint32_t code_point, uint8_t classes) {
  return (char_classes()[code_point] & classes) != 0;
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_class(decode_utf8_before(text.data() + begin).value, kWord)) ||
         (end < text.size() && is_class(decode_utf8(text.data() + end).value, kWord));
}

size_t skip_spaces_back(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const CodePoint c = decode_utf8_before(text.data() + at);
    if (!is_class(c.value, kSpace)) break;
    at -= c.num_bytes;
  }
  return std::max(at, limit);
}

size_t skip_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = decode_utf8(text.data() + at);
    if (!is_class(c.value, kSpace)) break;
    at += c.num_bytes;
  }
  return at;
}

Span span_of(size_t begin, size_t end) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  size_t node = 0;
  for (const char c : pattern) {
    const auto [child, is_new] =
        nodes_[node].children.try_emplace(static_cast<uint8_t>(c), nodes_.size());
    node = static_cast<size_t>(child->second);
    if (is_new) nodes_.emplace_back();
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  const auto first = static_cast<uint8_t>(pattern[0]);
  if (first_[first] == 0) {
    only_first_ = first;
    ++num_firsts_;
  }
  first_[first] = nodes_[0].children.at(first);
}

size_t AddedTokenMatcher::next_start(std::string_view text, size_t from) const {
  if (num_firsts_ == 1) {
    const void* at = std::memchr(text.data() + from, only_first_, text.size() - from);
    return at == nullptr ? text.size()
                         : static_cast<size_t>(static_cast<const char*>(at) - text.data());
  }
  while (from < text.size() && first_[static_cast<uint8_t>(text[from])] == 0)
    ++from;
  return from;
}

AddedTokenMatcher::Match AddedTokenMatcher::match_at(std::string_view text, size_t begin) const {
  Match match;
  int32_t node = first_[static_cast<uint8_t>(text[begin])];
  for (size_t at = begin + 1;; ++at) {
    const Node& here = nodes_[static_cast<size_t>(node)];
    if (here.token >= 0) match = {at, here.token};
    if (at == text.size()) return match;
    const auto child = here.children.find(static_cast<uint8_t>(text[at]));
    if (child == here.children.end()) return match;
    node = child->second;
  }
}

void AddedTokenMatcher::split(std::string_view text, std::vector<Segment>& segments) const {
  size_t done = 0;  // begin of the text behind the last segment
  for (size_t at = next_start(text, 0); at < text.size();) {
    const Match match = match_at(text, at);
    if (match.token < 0) {
      at = next_start(text, at + 1);
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.token)];
    if (!token.single_word || !touches_word(text, at, match.end)) {
      size_t begin = at;
      size_t end = match.end;
      if (token.lstrip)
        begin = std::max(skip_spaces_back(text, begin, std::min(done, begin)), done);
      if (token.rstrip) end = skip_spaces(text, end);
      if (done < begin) segments.push_back({span_of(done, begin), -1});
      segments.push_back({span_of(begin, std::max(begin, end)), token.id});
      done = end;
    }
    // Another added token may begin within the spaces that this token took in.
    at = next_start(text, match.end);
  }
  if (done < text.size()) segments.push_back({span_of(done, text.size()), -1});
}

}  // namespace encore::text
