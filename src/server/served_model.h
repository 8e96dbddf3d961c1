// What the protocols know of the model that is served.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/sampling_defaults.h"
#include "text/answer/answer_markup.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace encore::server {

// An adapter of the model, which requests name as a model of its own.
struct ServedAdapter {
  std::string name;
  std::string path;
};

// Threads: immutable while served. Lifetime: refers to tokenizer and template.
struct ServedModel {
  std::vector<std::string> names;              // the first is its own, the others stand for it
  std::string path;                            // the checkpoint's directory; empty: it has none
  const text::Tokenizer* tokenizer = nullptr;  // null: prompts and answers are token ids
  const text::ChatTemplate* chat_template = nullptr;  // null: no chat
  std::vector<ServedAdapter> adapters;                // LoRA
  text::AnswerMarkup markup;                          // the server finds it
  SamplingDefaults sampling;
  std::vector<int32_t> end_tokens;
  int64_t vocab_size = 0;
  int64_t max_seq_len = 0;  // prompt and generated tokens
  int64_t created = 0;      // Units: seconds since 1970

  // Does a request of that `model` mean this one, or it with an adapter?
  [[nodiscard]] bool has_name(std::string_view name) const {
    return is_own_name(name) || find_adapter(name) != nullptr;
  }
  // The adapter that a request of that `model` means: NAME, or MODEL:NAME. Null: none.
  [[nodiscard]] const ServedAdapter* find_adapter(std::string_view name) const {
    const auto named = [&](std::string_view adapter) {
      const auto found = std::ranges::find(adapters, adapter, &ServedAdapter::name);
      return found == adapters.end() ? nullptr : &*found;
    };
    if (is_own_name(name)) return nullptr;
    if (const ServedAdapter* found = named(name)) return found;
    for (const std::string& own : names) {
      if (name.starts_with(own) && name.substr(own.size()).starts_with(':'))
        return named(name.substr(own.size() + 1));
    }
    return nullptr;
  }

 private:
  [[nodiscard]] bool is_own_name(std::string_view name) const {
    return std::ranges::count(names, name) > 0;
  }
};

}  // namespace encore::server
