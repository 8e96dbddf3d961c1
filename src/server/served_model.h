// Describes the served model for the handlers of all protocols.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/sampling_defaults.h"
#include "text/answer/answer_markup.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace encore::server {

// An adapter (LoRA) of the model. A request uses it by giving its name as the request's model.
struct ServedAdapter {
  std::string name;
  std::string path;
};

// The adapters that requests may name. All functions lock. Threads: any.
class ServedAdapters {
 public:
  // Adds an adapter, which replaces one with the same name.
  void put(ServedAdapter adapter) {
    const std::lock_guard lock(mutex_);
    std::erase_if(adapters_, [&](const ServedAdapter& one) { return one.name == adapter.name; });
    adapters_.push_back(std::move(adapter));
  }
  void remove(std::string_view name) {
    const std::lock_guard lock(mutex_);
    std::erase_if(adapters_, [&](const ServedAdapter& one) { return one.name == name; });
  }
  [[nodiscard]] std::optional<ServedAdapter> find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(adapters_, name, &ServedAdapter::name);
    return found == adapters_.end() ? std::nullopt : std::optional(*found);
  }
  [[nodiscard]] std::vector<ServedAdapter> all() const {
    const std::lock_guard lock(mutex_);
    return adapters_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<ServedAdapter> adapters_;
};

// The model, as the handlers of requests see it. Threads: immutable while served, except for the
// adapters. Lifetime: the tokenizer and the template must outlive it.
struct ServedModel {
  std::vector<std::string> names;  // the first is the model's own name, the others are aliases
  std::string path;                // the checkpoint's directory; empty if there is none
  const text::Tokenizer* tokenizer = nullptr;         // if null, prompts and answers are token ids
  const text::ChatTemplate* chat_template = nullptr;  // if null, chats are refused
  // The LoRA adapters. All copies of this object share them.
  std::shared_ptr<ServedAdapters> adapters = std::make_shared<ServedAdapters>();
  text::AnswerMarkup markup;  // how answers mark reasoning and tool calls; the server detects it
  SamplingDefaults sampling;
  std::vector<int32_t> end_tokens;
  int64_t vocab_size = 0;
  int64_t max_seq_len = 0;  // the most tokens that a prompt and its generated text have together
  int64_t created = 0;      // Units: seconds since 1970

  // Returns whether a request with this "model" asks for this model or for one of its adapters.
  [[nodiscard]] bool has_name(std::string_view name) const {
    return is_own_name(name) || find_adapter(name).has_value();
  }
  // Returns the adapter that a request with this "model" asks for. The text may be NAME or
  // MODEL:NAME, where NAME is the adapter's.
  [[nodiscard]] std::optional<ServedAdapter> find_adapter(std::string_view name) const {
    if (is_own_name(name)) return std::nullopt;
    if (auto found = adapters->find(name)) return found;
    for (const std::string& own : names) {
      if (name.starts_with(own) && name.substr(own.size()).starts_with(':'))
        return adapters->find(name.substr(own.size() + 1));
    }
    return std::nullopt;
  }
  [[nodiscard]] bool is_own_name(std::string_view name) const {
    return std::ranges::count(names, name) > 0;
  }
};

}  // namespace encore::server
