#include "loader/rank_threads.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <pthread.h>
#include <utility>

#include "base/event_count.h"
#include "base/log.h"
#include "base/quiet_thread.h"

namespace encore::loader {

// Shares rank 0's ring of tokens, which shows the steps that its device has ended. Rank 0 sets the
// ring, and the other ranks read it.
class RankThreads::Watched {
 public:
  // Sets the ring to watch. Lifetime: the ring lives until set_none().
  void set(const runtime::TokenRing& ring) { ring_.store(&ring); }
  // Ends the watching. Waits until no rank reads the ring any more, but no longer than `timeout`: a
  // rank that reads for so long has stopped.
  void set_none(std::chrono::milliseconds timeout) {
    ring_.store(nullptr);
    (void)changes_.wait_for(timeout, [&] { return num_asking_.load() == 0; });
  }
  // Returns the first step that rank 0 has not published. Absent where no ring is set.
  std::optional<runtime::StepNumber> published() {
    num_asking_.fetch_add(1);
    const runtime::TokenRing* const ring = ring_.load();
    const auto step = ring != nullptr ? std::optional(ring->published()) : std::nullopt;
    num_asking_.fetch_sub(1);
    changes_.notify();
    return step;
  }

 private:
  std::atomic<const runtime::TokenRing*> ring_{nullptr};
  std::atomic<int> num_asking_{0};
  EventCount changes_;
};

namespace {

// Checks from time to time whether rank 0 is behind this rank, while this rank waits for calls of
// rank 0.
class Lookout {
 public:
  Lookout(Communicator& communicator, const runtime::TokenRing& own)
      : communicator_(communicator), own_(own) {}

  // `published` is the first step that rank 0 has not published. Errors: kDevice, which ends all
  // ranks, once rank 0 has been behind in the same step for the whole timeout.
  void look(std::optional<runtime::StepNumber> published) {
    const Clock::time_point now = Clock::now();
    const bool is_behind = published && runtime::is_before(*published, own_.published());
    if (!is_behind || *published != step_) {
      step_ = published.value_or(step_);
      since_ = now;
    }
    if (now - since_ < communicator_.timeout()) return;
    communicator_.fail(
        0, ErrorKind::kDevice,
        fmt::format("it has done nothing for {:g} s in a step that other ranks have ended",
                    std::chrono::duration<double>(communicator_.timeout()).count()));
    communicator_.check();
  }

 private:
  using Clock = std::chrono::steady_clock;

  Communicator& communicator_;
  const runtime::TokenRing& own_;
  runtime::StepNumber step_ = 0;            // step of rank 0 at the last look
  Clock::time_point since_ = Clock::now();  // since when rank 0 has been behind in that step
};

}  // namespace

// A queue of the calls that a rank has yet to make, with flags for the state of its thread. It has
// no lock, so rank 0 goes on where the rank stops, and the rank goes on where rank 0 stops.
class RankThreads::Mailbox {
 public:
  using ModelCall = std::function<void(LoadedModel& model)>;
  using SharedCall = std::shared_ptr<const ModelCall>;  // shared by all ranks that make the call

  Mailbox() = default;
  ~Mailbox() {
    while (first_ != nullptr)
      first_.reset(first_->next.load());
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Appends a call. Only rank 0 calls put() and close().
  void put(SharedCall call) {
    auto node = std::make_unique<Node>();
    node->call = std::move(call);
    Node* const last = std::exchange(last_, node.release());
    last->next.store(last_, std::memory_order_release);
    changes_.notify();
  }
  // Ends the queue: no call is put after this.
  void close() { put(nullptr); }
  // Waits for the next call and returns it, or null at the end of the queue. Calls look() from time
  // to time while it waits. Only the thread of the rank calls it.
  template <typename Look>
  SharedCall take(std::chrono::milliseconds between_looks, const Look& look) {
    Node* next = nullptr;
    const auto is_there = [&] {
      next = first_->next.load(std::memory_order_acquire);
      return next != nullptr;
    };
    while (!changes_.wait_for(between_looks, is_there))
      look();
    first_.reset(next);
    return std::move(first_->call);
  }
  // Notes that the model of the rank has loaded, and which adapter slots it has.
  void set_loaded(std::shared_ptr<AdapterShare> adapters) {
    adapters_ = std::move(adapters);
    set(has_loaded_);
  }
  // Waits until the model of the rank has loaded, and returns its adapter slots. Absent where the
  // thread ended before that.
  std::optional<std::shared_ptr<AdapterShare>> wait_loaded() {
    changes_.wait_until([&] { return has_loaded_.load() || has_left_.load(); });
    return has_loaded_.load() ? std::optional(adapters_) : std::nullopt;
  }
  void leave() { set(has_left_); }
  // Notes that rank 0 knows of the failure of a rank.
  void set_noticed() { set(has_noticed_); }
  // Waits until rank 0 knows of a failure, but no longer than `timeout`. Returns whether it knows.
  bool wait_noticed(std::chrono::milliseconds timeout) {
    return changes_.wait_for(timeout, [&] { return has_noticed_.load(); });
  }
  // Waits until the thread has ended, but no longer than `timeout` where that is given. Returns
  // whether it has ended.
  bool wait_left(std::optional<std::chrono::milliseconds> timeout) {
    const auto left = [&] { return has_left_.load(); };
    if (timeout) return changes_.wait_for(*timeout, left);
    changes_.wait_until(left);
    return true;
  }

 private:
  // A call in the queue, with a pointer to the call after it.
  struct Node {
    SharedCall call;
    std::atomic<Node*> next{nullptr};
  };

  void set(std::atomic<bool>& fact) {
    fact.store(true);
    changes_.notify();
  }

  EventCount changes_;                                      // notified when a member below changes
  std::unique_ptr<Node> first_ = std::make_unique<Node>();  // last call taken; used by the rank
  Node* last_ = first_.get();                               // last call put; used by rank 0
  std::shared_ptr<AdapterShare> adapters_;                  // set once the model has loaded
  std::atomic<bool> has_loaded_{false};
  std::atomic<bool> has_left_{false};
  std::atomic<bool> has_noticed_{false};
};

RankThreads::RankThreads(Device& first, const model::ModelSource& source,
                         const LoadOptions& options)
    : communicator_(first.communicator()), watched_(std::make_shared<Watched>()) {
  for (const std::shared_ptr<Device>& device : first.peers()) {
    const auto mailbox = std::make_shared<Mailbox>();  // shared by this object and the thread
    mailboxes_.push_back(mailbox);
    threads_.emplace_back(
        [device, mailbox, source, options, communicator = communicator_, watched = watched_] {
          const log::QuietThread quiet;
          const int index = device->rank().index;
          pthread_setname_np(pthread_self(), fmt::format("rank {}", index).c_str());
          try {
            LoadedModel model(*device, source, options);
            Stream& stream = model.executor().loaded().stream;
            mailbox->set_loaded(model.adapter_share());
            Lookout lookout(*communicator, model.executor().output().ring());
            const auto between_looks =
                std::max(communicator->timeout() / 8, std::chrono::milliseconds(1));
            while (const auto call =
                       mailbox->take(between_looks, [&] { lookout.look(watched->published()); })) {
              (*call)(model);
              stream.check();  // nobody else checks this rank's work for errors
            }
            stream.synchronize();
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

void RankThreads::watch(const runtime::TokenRing& ring) {
  watched_->set(ring);
}

void RankThreads::unwatch() {
  watched_->set_none(communicator_->timeout());
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
