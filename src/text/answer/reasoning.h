// Splits a model's reasoning off its answer.
#pragma once

#include <string>
#include <string_view>

#include "text/answer/marker_search.h"

namespace encore::text {

// Reasoning stands between <think> and </think> at the start of the text, or from the text's start
// where the prompt has opened it. White space at its ends, and in front of what follows it, belongs
// to neither. The split does not depend on how the text is cut. Threads: one at a time.
class ReasoningSplitter {
 public:
  // `starts_inside`: the prompt ends with <think>.
  explicit ReasoningSplitter(bool starts_inside)
      : state_(starts_inside ? State::kReasoningStart : State::kStart) {}

  struct Texts {
    std::string reasoning;
    std::string content;  // it comes behind the reasoning
  };
  Texts push(std::string_view text);
  // Ends the text and returns the parts that are still held back. REQUIRES: nothing is pushed
  // afterwards.
  Texts finish();
  // Is all text up to here known to be no content? Markers, and the white space around them, are no
  // content.
  [[nodiscard]] bool is_in_reasoning() const {
    return state_ != State::kStart && state_ != State::kContent;
  }
  // Is everything that follows content, and the text that is held back too? Where this and
  // is_in_reasoning() are both false, the text may still become a marker.
  [[nodiscard]] bool is_in_content() const { return state_ == State::kContent; }

 private:
  enum class State {
    kStart,           // of the text: white space, and perhaps the opening marker
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
