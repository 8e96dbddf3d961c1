// Describes the served model to the protocols.
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

// An adapter of the model, which requests name as a model of its own.
struct ServedAdapter {
  std::string name;
  std::string path;
};

// The adapters that requests may name. Threads: any.
class ServedAdapters {
 public:
  // Under its name, in the place of one that had it.
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

// Threads: immutable while served, but for the adapters. Lifetime: refers to tokenizer and template.
struct ServedModel {
  std::vector<std::string> names;              // the first is its own, the others stand for it
  std::string path;                            // the checkpoint's directory; empty: it has none
  const text::Tokenizer* tokenizer = nullptr;  // null: prompts and answers are token ids
  const text::ChatTemplate* chat_template = nullptr;  // null: no chat
  // LoRA. Shared by the copies of the model.
  std::shared_ptr<ServedAdapters> adapters = std::make_shared<ServedAdapters>();
  text::AnswerMarkup markup;  // the server finds it
  SamplingDefaults sampling;
  std::vector<int32_t> end_tokens;
  int64_t vocab_size = 0;
  int64_t max_seq_len = 0;  // prompt and generated tokens
  int64_t created = 0;      // Units: seconds since 1970

  // Does a request of that `model` mean this one, or it with an adapter?
  [[nodiscard]] bool has_name(std::string_view name) const {
    return is_own_name(name) || find_adapter(name).has_value();
  }
  // The adapter that a request of that `model` means: NAME, or MODEL:NAME.
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
