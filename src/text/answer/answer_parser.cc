#include "text/answer/answer_parser.h"

namespace encore::text {

AnswerParser::AnswerParser(const AnswerRules& rules) : parallel_calls_(rules.parallel_calls) {
  if (rules.has_reasoning) reasoning_.emplace(rules.starts_in_reasoning);
  if (rules.tool_calls != ToolCallFormat::kNone && !rules.tools.empty())
    calls_ = make_tool_call_parser(rules.tool_calls, rules.tools);
}

AnswerParts AnswerParser::push(std::string_view text) {
  AnswerParts out;
  if (!reasoning_) {
    push_content(text, out);
    return out;
  }
  const ReasoningSplitter::Texts texts = reasoning_->push(text);
  append(out, AnswerPart::Kind::kReasoning, texts.reasoning);
  push_content(texts.content, out);
  return out;
}

void AnswerParser::push_content(std::string_view text, AnswerParts& out) {
  if (!calls_) return append(out, AnswerPart::Kind::kContent, text);
  // has_ended() may become true at any byte. The parser of calls gets one byte at a time, since no
  // text behind the call that ends the answer may reach it.
  for (const char& byte : text) {
    if (has_ended()) return;
    calls_->push(std::string_view(&byte, 1), out);
  }
}

AnswerParts AnswerParser::finish() {
  AnswerParts out;
  if (has_ended()) return out;
  if (reasoning_) {
    const ReasoningSplitter::Texts texts = reasoning_->finish();
    append(out, AnswerPart::Kind::kReasoning, texts.reasoning);
    push_content(texts.content, out);
  }
  if (calls_) calls_->finish(out);
  return out;
}

bool AnswerParser::has_ended() const {
  return calls_ != nullptr && !parallel_calls_ && calls_->num_complete() > 0;
}

}  // namespace encore::text
