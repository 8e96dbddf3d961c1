// What the protocols know of the model that is served.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/sampling_defaults.h"
#include "text/answer/answer_markup.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace encore::server {

// Threads: immutable while served. Lifetime: refers to tokenizer and template.
struct ServedModel {
  std::vector<std::string> names;              // the first is its own, the others stand for it
  std::string path;                            // the checkpoint's directory; empty: it has none
  const text::Tokenizer* tokenizer = nullptr;  // null: prompts and answers are token ids
  const text::ChatTemplate* chat_template = nullptr;  // null: no chat
  text::AnswerMarkup markup;                          // the server finds it
  SamplingDefaults sampling;
  std::vector<int32_t> end_tokens;
  int64_t vocab_size = 0;
  int64_t max_seq_len = 0;  // prompt and generated tokens
  int64_t created = 0;      // Units: seconds since 1970

  [[nodiscard]] bool has_name(std::string_view name) const {
    for (const std::string& known : names) {
      if (known == name) return true;
    }
    return false;
  }
};

}  // namespace encore::server
