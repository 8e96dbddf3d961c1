// Finds out how a model marks the parts of its answers, from the prompts that its chat template
// writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/tool_call_parser.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace encore::text {

struct AnswerMarkup {
  bool has_reasoning = false;  // answers may have reasoning between <think> and </think>
  ToolCallFormat tool_calls = ToolCallFormat::kNone;
  // The markers that are special tokens. The text must show them, or reasoning and calls cannot be
  // found.
  std::vector<int32_t> reasoning_tokens;
  std::vector<int32_t> call_tokens;
  // Is true where the template writes messages of the role `developer` in a way of their own. Where
  // it is false, such messages count as messages of the system.
  bool knows_developers = false;
  bool takes_late_systems = false;  // the template shows system messages behind others
};

// Finds the markup: renders conversations with reasoning, tools and text parts, and looks at the
// prompts.
AnswerMarkup find_markup(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// Returns whether a prompt leaves the reasoning open, so that the answer begins within the
// reasoning.
bool opens_reasoning(std::string_view prompt);

}  // namespace encore::text
