// Collects the content of an answer that also calls tools.
#pragma once

#include <string_view>

#include "text/answer/answer_part.h"
#include "text/answer/marker_search.h"

namespace encore::text {

// Adds content to the parts of an answer, without the separators between the content and a call in
// front of it.
class ContentBesideCalls {
 public:
  // `separators` lists the bytes that may stand behind a call, besides white space.
  explicit ContentBesideCalls(std::string_view separators = "") : separators_(separators) {}

  [[nodiscard]] bool is_separator(char byte) const {
    return is_space(byte) || separators_.find(byte) != std::string_view::npos;
  }
  // Notes that a call has ended.
  void end_call() { follows_call_ = true; }
  // Returns whether nothing but separators has come since a call.
  [[nodiscard]] bool follows_call() const { return follows_call_; }
  void show(std::string_view text, AnswerParts& out) {
    while (follows_call_ && !text.empty() && is_separator(text.front()))
      text.remove_prefix(1);
    if (!text.empty()) follows_call_ = false;
    append(out, AnswerPart::Kind::kContent, text);
  }

 private:
  std::string_view separators_;
  bool follows_call_ = false;
};

}  // namespace encore::text
