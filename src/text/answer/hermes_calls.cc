#include "text/answer/hermes_calls.h"

#include <utility>

namespace encore::text {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

}  // namespace

void HermesCalls::push(std::string_view text, AnswerParts& out) {
  for (const char byte : text)
    push(byte, out);
}

void HermesCalls::push(char byte, AnswerParts& out) {
  switch (state_) {
    case State::kContent:
      return push_content(byte, out);
    case State::kCall:
      return push_call(byte, out);
    case State::kBehindCall:
      return push_behind_call(byte, out);
    case State::kBrokenArguments: {
      std::string text;
      if (closing_.push(byte, text)) {
        closing_.take_spaces();
        state_ = State::kContent;
        content_.end_call();
        ++num_complete_;
      }
      return append(out, AnswerPart::Kind::kArguments, text);
    }
  }
}

void HermesCalls::push_content(char byte, AnswerParts& out) {
  std::string text;
  const bool is_opened = opening_.push(byte, text);
  content_.show(text, out);
  if (is_opened) begin_call(opening_.take_spaces());
}

void HermesCalls::begin_call(std::string spaces) {
  state_ = State::kCall;
  raw_ = std::move(spaces) + std::string(kOpening);
  scanner_.emplace(CallRules{.accepts = [](std::string_view name) { return !name.empty(); }});
}

void HermesCalls::push_call(char byte, AnswerParts& out) {
  switch (scanner_->push(byte, out)) {
    case CallScanner::State::kOpen:
      if (!scanner_->has_begun()) raw_ += byte;
      return;
    case CallScanner::State::kComplete:
      ++num_complete_;
      raw_.clear();
      state_ = State::kBehindCall;
      return;
    case CallScanner::State::kBroken:
      if (scanner_->has_begun()) {
        state_ = State::kBrokenArguments;
        return push(byte, out);
      }
      content_.show(std::exchange(raw_, ""), out);
      state_ = State::kContent;
      return push(byte, out);
  }
}

void HermesCalls::push_behind_call(char byte, AnswerParts& out) {
  raw_ += byte;
  const bool is_closed = raw_.ends_with(kClosing);
  const bool is_opened = !is_closed && raw_.ends_with(kOpening);
  if (!is_closed && !is_opened) return;
  content_.end_call();
  // Between the JSON and the closing marker, models write nothing but superfluous brackets, which
  // are dropped.
  const std::string rest = std::exchange(raw_, "");
  state_ = State::kContent;
  if (is_closed) return;
  content_.show(trimmed(std::string_view(rest).substr(0, rest.size() - kOpening.size())), out);
  begin_call("");
}

void HermesCalls::finish(AnswerParts& out) {
  std::string rest;
  switch (state_) {
    case State::kContent:
      opening_.flush(rest);
      return content_.show(rest, out);
    case State::kCall:
      if (!scanner_->has_begun()) content_.show(raw_, out);
      return;
    case State::kBehindCall: {
      const std::string_view text = trimmed(raw_);
      if (!kClosing.starts_with(text)) append(out, AnswerPart::Kind::kContent, text);
      return;
    }
    case State::kBrokenArguments:
      closing_.flush(rest);
      return append(out, AnswerPart::Kind::kArguments, rest);
  }
}

}  // namespace encore::text
