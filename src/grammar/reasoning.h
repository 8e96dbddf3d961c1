// Grammars for answers that may begin with reasoning, which no grammar holds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sample/token_grammar.h"

namespace encore::grammar {

// The tokens around the reasoning of a model.
struct ReasoningMarks {
  int32_t opening = 0;
  int32_t closing = 0;
  bool starts_inside = false;       // the prompt has opened it
  std::vector<int32_t> end_tokens;  // none of them comes within it
};

// An answer that fits `answer`, behind any tokens that stand between the marks, if there are some.
std::shared_ptr<const sample::TokenGrammar> behind_reasoning(
    std::shared_ptr<const sample::TokenGrammar> answer, const ReasoningMarks& marks,
    int64_t vocab_size);

}  // namespace encore::grammar
