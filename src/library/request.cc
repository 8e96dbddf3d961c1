#include "library/request.h"

#include <algorithm>

namespace encore::library {
namespace {

Finish finish_of(engine::EndReason reason) {
  switch (reason) {
    case engine::EndReason::kStop:
      return Finish::kStop;
    case engine::EndReason::kLength:
      return Finish::kLength;
    case engine::EndReason::kAborted:
      return Finish::kAborted;
    case engine::EndReason::kError:
    case engine::EndReason::kGrammar:
      break;
  }
  return Finish::kError;
}

}  // namespace

Update Request::read(const engine::Update& delivered) {
  Update update{.num_cached = delivered.num_cached};
  if (is_over_) return update;
  std::span<const int32_t> tokens = delivered.tokens;
  if (output_) {
    const int64_t before = output_->num_tokens();
    update.text = output_->push(tokens);
    tokens = tokens.first(output_->num_tokens() - before);
    if (output_->is_stopped()) update.finish = Finish::kStop;
  }
  update.tokens.assign(tokens.begin(), tokens.end());
  const auto logprobs =
      delivered.logprobs.first(std::min(tokens.size(), delivered.logprobs.size()));
  update.logprobs.assign(logprobs.begin(), logprobs.end());
  if (delivered.ending && !update.finish) {
    update.finish = finish_of(delivered.ending->reason);
    update.error = delivered.ending->message;
    if (output_) update.text += output_->finish();
  }
  is_over_ = update.finish.has_value();
  // output_ refers to the tokenizer, which the request may outlive.
  if (is_over_) output_.reset();
  return update;
}

void Request::give(Update update) {
  if (update.tokens.empty() && !update.finish) return;
  {
    const std::lock_guard lock(mutex_);
    unread_.text += update.text;
    unread_.tokens.insert(unread_.tokens.end(), update.tokens.begin(), update.tokens.end());
    unread_.logprobs.insert(unread_.logprobs.end(), update.logprobs.begin(), update.logprobs.end());
    unread_.num_cached = std::max(unread_.num_cached, update.num_cached);
    unread_.finish = update.finish;
    unread_.error = std::move(update.error);
    has_news_ = true;
  }
  arrives_.notify_all();
}

Update Request::next(Timeout timeout) {
  std::unique_lock lock(mutex_);
  const auto is_ready = [this] { return has_news_; };
  if (timeout) {
    arrives_.wait_for(lock, *timeout, is_ready);
  } else {
    arrives_.wait(lock, is_ready);
  }
  Update update = unread_;
  unread_.text.clear();
  unread_.tokens.clear();
  unread_.logprobs.clear();
  has_news_ = unread_.finish.has_value();
  return update;
}

bool Request::has_ended() const {
  const std::lock_guard lock(mutex_);
  return unread_.finish.has_value();
}

}  // namespace encore::library
