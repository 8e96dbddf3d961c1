// Divides the text of a model's answer into its parts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer_part.h"
#include "text/answer/reasoning.h"
#include "text/answer/tool_call_parser.h"

namespace encore::text {

// Says which parts an answer may have. By default all text is content.
struct AnswerRules {
  bool has_reasoning = false;
  bool starts_in_reasoning = false;  // the prompt ends within the reasoning
  ToolCallFormat tool_calls = ToolCallFormat::kNone;
  std::vector<std::string> tools;  // names of the request's tools
  bool parallel_calls = true;      // false: the answer ends behind the first call
};

// Divides an answer into reasoning, content and calls as it comes. Threads: one at a time.
class AnswerParser {
 public:
  explicit AnswerParser(const AnswerRules& rules);

  // Returns the parts that are certain now. Text behind the end is ignored.
  AnswerParts push(std::string_view text);
  // Ends the text and returns the parts that are still held back.
  AnswerParts finish();

  // Returns whether a call has ended the answer, because the rules allow one call only.
  [[nodiscard]] bool has_ended() const;
  // is_in_reasoning() and is_in_content() say in which part the text pushed so far ends. At the
  // start of an answer both may be false, since the text may become a marker. Calls count as
  // content.
  [[nodiscard]] bool is_in_reasoning() const { return reasoning_ && reasoning_->is_in_reasoning(); }
  [[nodiscard]] bool is_in_content() const { return !reasoning_ || reasoning_->is_in_content(); }

 private:
  void push_content(std::string_view text, AnswerParts& out);

  bool parallel_calls_;
  std::optional<ReasoningSplitter> reasoning_;
  std::unique_ptr<ToolCallParser> calls_;  // null: the rules name no format or no tools
};

}  // namespace encore::text
