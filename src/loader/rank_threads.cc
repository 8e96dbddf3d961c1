#include "loader/rank_threads.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include <pthread.h>

#include "base/log.h"
#include "base/quiet_thread.h"

namespace encore::loader {

// The calls that a rank has not made, and the end of its thread.
class RankThreads::Mailbox {
 public:
  using ModelCall = std::function<void(LoadedModel& model)>;
  using SharedCall = std::shared_ptr<const ModelCall>;  // by all ranks that make it

  void put(SharedCall call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.notify_all();
  }
  // No call comes any more.
  void close() { put(nullptr); }
  // The next call; null: there is none any more.
  SharedCall take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !calls_.empty(); });
    SharedCall call = std::move(calls_.front());
    calls_.pop_front();
    return call;
  }
  // The thread's model has loaded.
  void set_loaded(std::shared_ptr<AdapterShare> adapters) {
    const std::lock_guard lock(mutex_);
    loaded_ = std::move(adapters);
    changed_.notify_all();
  }
  // The slots of its adapters, once it has; absent where the thread has left before.
  std::optional<std::shared_ptr<AdapterShare>> wait_loaded() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return loaded_.has_value() || has_left_; });
    return loaded_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    has_left_ = true;
    changed_.notify_all();
  }
  // Rank 0 knows that a rank has failed.
  void set_noticed() {
    const std::lock_guard lock(mutex_);
    has_noticed_ = true;
    changed_.notify_all();
  }
  // Does rank 0 know within that time?
  bool wait_noticed(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return has_noticed_; });
  }
  // Has the thread left within that time? Absent: whenever it does.
  bool wait_left(std::optional<std::chrono::milliseconds> timeout) {
    std::unique_lock lock(mutex_);
    const auto left = [&] { return has_left_; };
    if (timeout) return changed_.wait_for(lock, *timeout, left);
    changed_.wait(lock, left);
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SharedCall> calls_;
  std::optional<std::shared_ptr<AdapterShare>> loaded_;
  bool has_left_ = false;
  bool has_noticed_ = false;
};

RankThreads::RankThreads(Device& first, const model::ModelSource& source,
                         const LoadOptions& options)
    : communicator_(first.communicator()) {
  for (const std::shared_ptr<Device>& device : first.peers()) {
    const auto mailbox = std::make_shared<Mailbox>();  // shared by this object and the thread
    mailboxes_.push_back(mailbox);
    threads_.emplace_back([device, mailbox, source, options, communicator = communicator_] {
      const log::QuietThread quiet;
      const int index = device->rank().index;
      pthread_setname_np(pthread_self(), fmt::format("rank {}", index).c_str());
      try {
        LoadedModel model(*device, source, options);
        mailbox->set_loaded(model.adapter_share());
        while (const auto call = mailbox->take()) {
          (*call)(model);
          model.executor().stream().check();  // nobody else looks at what this rank has enqueued
        }
        model.executor().synchronize();
      } catch (const Error& error) {
        communicator->fail(index, error.kind(), error.what());
      } catch (const std::exception& error) {
        communicator->fail(index, ErrorKind::kDevice, error.what());
      }
      mailbox->leave();
      if (!options.on_stopped_rank0 || communicator->failed_rank() != 0 ||
          mailbox->wait_noticed(communicator->timeout()))
        return;
      try {
        communicator->check();
      } catch (const Error& error) {
        options.on_stopped_rank0(error);
      }
    });
  }
}

RankThreads::~RankThreads() {
  for (const auto& mailbox : mailboxes_) {
    mailbox->set_noticed();
    mailbox->close();
  }
  std::optional<std::chrono::milliseconds> timeout;
  try {
    communicator_->check();
  } catch (const Error&) {
    timeout = communicator_->timeout();
  }
  for (size_t i = 0; i < mailboxes_.size(); ++i) {
    if (mailboxes_[i]->wait_left(timeout)) {
      threads_[i].join();
    } else {
      log::warning("the thread of rank {} has not come back and is left behind", i + 1);
      threads_[i].detach();
    }
  }
}

void RankThreads::post(Call call) {
  post_to_models([call = std::move(call)](LoadedModel& model) {
    call({model.executor(), model.scores_prompts() ? &model.prompt_scorer() : nullptr});
  });
}

void RankThreads::post_to_models(std::function<void(LoadedModel& model)> call) {
  check();
  const auto shared = std::make_shared<const Mailbox::ModelCall>(std::move(call));
  for (const auto& mailbox : mailboxes_)
    mailbox->put(shared);
}

std::vector<std::shared_ptr<AdapterShare>> RankThreads::adapter_shares() {
  std::vector<std::shared_ptr<AdapterShare>> shares;
  for (const auto& mailbox : mailboxes_) {
    auto share = mailbox->wait_loaded();
    if (!share) check();
    shares.push_back(std::move(share.value()));
  }
  return shares;
}

void RankThreads::fail(const Error& error) noexcept {
  communicator_->fail(0, error.kind(), error.what());
  set_noticed();
}

void RankThreads::check() {
  try {
    communicator_->check();
  } catch (const Error&) {
    set_noticed();
    throw;
  }
}

void RankThreads::set_noticed() noexcept {
  for (const auto& mailbox : mailboxes_)
    mailbox->set_noticed();
}

}  // namespace encore::loader
