// Splits a model's reasoning off its answer.
#pragma once

#include <string>
#include <string_view>

#include "text/answer/marker_search.h"

namespace encore::text {

// Splits a text into reasoning and content. Reasoning stands between <think> and </think> at the
// start of the text, or from the text's start where the prompt ends with <think>. White space at
// both ends of the reasoning, and in front of the content, belongs to neither. The split does not
// depend on how the text is cut. Threads: one at a time.
class ReasoningSplitter {
 public:
  // `starts_inside` says that the prompt ends with <think>.
  explicit ReasoningSplitter(bool starts_inside)
      : state_(starts_inside ? State::kReasoningStart : State::kStart) {}

  struct Texts {
    std::string reasoning;
    std::string content;  // the content that follows that reasoning
  };
  Texts push(std::string_view text);
  // Ends the text and returns the parts that are still held back. REQUIRES: nothing is pushed
  // afterwards.
  Texts finish();
  // Returns whether all text so far is known not to be content. Markers, and the white space around
  // them, are not content.
  [[nodiscard]] bool is_in_reasoning() const {
    return state_ != State::kStart && state_ != State::kContent;
  }
  // Returns whether all text that follows, and the text that is held back, is content. Where
  // is_in_content() and is_in_reasoning() are both false, the text may still become a marker.
  [[nodiscard]] bool is_in_content() const { return state_ == State::kContent; }

 private:
  enum class State {
    kStart,           // start of the text: white space, and perhaps the opening marker
    kReasoningStart,  // white space, and perhaps the opening marker again
    kReasoning,
    kContentStart,  // white space behind the closing marker
    kContent,
  };

  void push(char byte, Texts& out);

  State state_;
  MarkerSearch opening_{"<think>"};
  MarkerSearch closing_{"</think>"};
};

}  // namespace encore::text
