#include "text/answer/json_calls.h"

#include <algorithm>
#include <utility>

namespace encore::text {

bool JsonCalls::accepts(std::string_view name) const {
  if (!style_.needs_no_marker) return !name.empty();
  return std::find(tools_.begin(), tools_.end(), name) != tools_.end();
}

void JsonCalls::push(std::string_view text, AnswerParts& out) {
  for (const char byte : text)
    push(byte, out);
}

void JsonCalls::push(char byte, AnswerParts& out) {
  switch (state_) {
    case State::kContent:
      return push_content(byte, out);
    case State::kMarked:
      if (byte == '{') return begin_call(byte, out);
      if (content_.is_separator(byte)) {
        raw_ += byte;
        return;
      }
      give_up(out);
      return push(byte, out);
    case State::kCall:
      return push_call(byte, out);
    case State::kBrokenArguments:
      return append(out, AnswerPart::Kind::kArguments, std::string_view(&byte, 1));
  }
}

void JsonCalls::push_content(char byte, AnswerParts& out) {
  const bool may_begin = content_.follows_call() || (style_.needs_no_marker && is_at_line_start_);
  if (byte == '{' && may_begin && !marker_.is_within()) {
    raw_ = marker_.take_spaces();
    return begin_call(byte, out);
  }
  std::string text;
  const bool is_marked = marker_.push(byte, text);
  content_.show(text, out);
  if (byte == '\n') {
    is_at_line_start_ = true;
  } else if (!is_space(byte)) {
    is_at_line_start_ = false;
  }
  if (!is_marked) return;
  raw_ = marker_.take_spaces() + std::string(style_.marker);
  state_ = State::kMarked;
}

void JsonCalls::begin_call(char byte, AnswerParts& out) {
  state_ = State::kCall;
  scanner_.emplace(CallRules{.accepts = [this](std::string_view name) { return accepts(name); },
                             .refuses_other_keys = style_.needs_no_marker});
  push_call(byte, out);
}

void JsonCalls::push_call(char byte, AnswerParts& out) {
  switch (scanner_->push(byte, out)) {
    case CallScanner::State::kOpen:
      if (!scanner_->has_begun()) raw_ += byte;
      return;
    case CallScanner::State::kComplete:
      ++num_complete_;
      raw_.clear();
      state_ = State::kContent;
      is_at_line_start_ = false;
      content_.end_call();
      return;
    case CallScanner::State::kBroken:
      if (scanner_->has_begun()) {
        state_ = State::kBrokenArguments;
      } else {
        is_at_line_start_ = false;
        give_up(out);
      }
      return push(byte, out);
  }
}

void JsonCalls::give_up(AnswerParts& out) {
  state_ = State::kContent;
  content_.show(std::exchange(raw_, ""), out);
}

void JsonCalls::finish(AnswerParts& out) {
  std::string rest;
  if (state_ == State::kContent) marker_.flush(rest);
  if (state_ == State::kMarked || (state_ == State::kCall && !scanner_->has_begun())) rest = raw_;
  content_.show(rest, out);
}

}  // namespace encore::text
