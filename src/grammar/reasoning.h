// Makes grammars for answers that may begin with reasoning, which is not constrained.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sample/token_grammar.h"

namespace encore::grammar {

// The tokens that mark a model's reasoning.
struct ReasoningMarks {
  int32_t opening = 0;
  int32_t closing = 0;
  bool starts_inside = false;       // the prompt has opened the reasoning already
  std::vector<int32_t> end_tokens;  // they are not allowed within the reasoning
};

// Returns a grammar of answers that fit `answer` and may begin with reasoning: any tokens between
// the two marks.
std::shared_ptr<const sample::TokenGrammar> behind_reasoning(
    std::shared_ptr<const sample::TokenGrammar> answer, const ReasoningMarks& marks,
    int64_t vocab_size);

}  // namespace encore::grammar
