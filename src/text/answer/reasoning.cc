#include "text/answer/reasoning.h"

namespace encore::text {

ReasoningSplitter::Texts ReasoningSplitter::push(std::string_view text) {
  Texts out;
  for (const char byte : text)
    push(byte, out);
  return out;
}

void ReasoningSplitter::push(char byte, Texts& out) {
  std::string text;
  switch (state_) {
    case State::kStart:
      if (opening_.push(byte, out.content)) {
        opening_.take_spaces();
        state_ = State::kReasoningStart;
      } else if (!out.content.empty()) {
        opening_.flush(out.content);
        state_ = State::kContent;
      }
      return;
    case State::kReasoningStart:
      // While opening_ looks for the opening marker, it also holds back the start of a closing
      // marker, as both begin with '<'. Where the text is not the opening marker, its bytes are
      // pushed again, and the search for the closing marker sees them.
      if (opening_.push(byte, text)) {
        opening_.take_spaces();
      } else if (!text.empty()) {
        state_ = State::kReasoning;
        opening_.flush(text);
        for (const char waited : text.substr(text.find_first_not_of(" \t\r\n")))
          push(waited, out);
      }
      return;
    case State::kReasoning:
      if (closing_.push(byte, out.reasoning)) {
        closing_.take_spaces();
        state_ = State::kContentStart;
      }
      return;
    case State::kContentStart:
      if (is_space(byte)) return;
      state_ = State::kContent;
      [[fallthrough]];
    case State::kContent:
      out.content += byte;
  }
}

ReasoningSplitter::Texts ReasoningSplitter::finish() {
  Texts out;
  if (state_ == State::kStart) {
    opening_.flush(out.content);
    state_ = State::kContent;
  }
  if (state_ == State::kReasoningStart) {
    opening_.take_spaces();
    opening_.flush(out.reasoning);
  }
  if (state_ == State::kReasoning) closing_.flush(out.reasoning);
  return out;
}

}  // namespace encore::text
