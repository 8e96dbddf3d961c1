// Finds out how a model marks the parts of its answers, by what its chat template does.
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
  bool has_reasoning = false;  // between <think> and </think>
  ToolCallFormat tool_calls = ToolCallFormat::kNone;
  // Markers that are special tokens: the text must show them for reasoning or calls to be found.
  std::vector<int32_t> reasoning_tokens;
  std::vector<int32_t> call_tokens;
  // Does the template write messages of the role developer in a way of their own? Else they are of
  // the system.
  bool knows_developers = false;
  bool takes_late_systems = false;  // messages of the system behind others
};

// Renders conversations with reasoning, tools and parts, and looks at what comes of them.
AnswerMarkup find_markup(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// Does a prompt leave the reasoning open, so that the answer begins within?
bool opens_reasoning(std::string_view prompt);

}  // namespace encore::text
