// Serves requests that come from other threads with one engine.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <boost/container/small_vector.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include "engine/generator.h"

namespace encore::engine {

struct ServingOptions {
  EngineOptions engine;
  // The number of requests that may wait beyond those that fit a step. Further requests are
  // refused.
  int64_t max_queue = 1024;
};

// Holds an engine and its inbox. The thread that loaded the model calls run(), and is the engine's
// thread from then on. It sleeps while there is nothing to do.
// Threads: as Generator; sinks may call everything but run(). Lifetime: refers to the model.
class ServingLoop final : public Generator {
 public:
  explicit ServingLoop(LoadedModel& model, const ServingOptions& options = {});

  void run() override;
  void drain() override;
  void stop() override;
  std::variant<std::vector<RequestId>, Refusal> submit(
      std::vector<Submission> submissions) override;
  void abort(RequestId id) override;
  [[nodiscard]] int64_t capacity() const override { return capacity_; }
  [[nodiscard]] GeneratorStatistics statistics() const override;
  [[nodiscard]] std::optional<Refusal> closed() const override;
  void sleep(SleepDepth depth, Done done) override;
  void wake(Done done) override;
  std::optional<Refusal> load_adapter(const std::string& name, const std::string& path,
                                      bool replaces) override;
  std::optional<Refusal> unload_adapter(const std::string& name) override;

 private:
  enum class State : uint8_t { kOpen, kDraining, kStopped };

  struct Submitted {
    RequestId id = 0;
    Submission submission;
    kv::PageChain chain;  // hashes of the prompt's pages
  };
  struct Aborted {
    RequestId id = 0;
  };
  struct SleepOrWake {
    std::optional<SleepDepth> depth;  // absent: wake
    Done done;
  };
  using Message = std::variant<Submitted, Aborted, SleepOrWake>;
  // A request on the engine's thread. The fields that every token touches come first, at the start
  // of a cache line.
  struct alignas(64) Live {
    Sink sink;
    boost::container::small_vector<int32_t, 2> tokens =
        {};  // tokens since the last call of the sink
    bool is_touched = false;
    int64_t num_cached = 0;
    int64_t num_drafted = 0;  // number of `tokens` that were drafts
    std::optional<std::chrono::steady_clock::time_point> admitted = {};
    std::vector<LogprobRow> logprobs = {};
    std::vector<LogprobRow> prompt_logprobs = {};
    std::optional<Ending> ending = {};
    RequestId id = 0;
    SequenceId sequence = 0;
  };

  // Waits until a message comes, or until a busy engine has a step to launch or to look at. Takes
  // the inbox.
  State wait_for_work(bool is_busy);
  // Acts on all messages taken from the inbox.
  // Errors: as receive(). The message at fault and those behind it stay in `received_`.
  void receive_all();
  void receive(Submitted& submitted);
  void receive(const Aborted& aborted);
  // Puts the model to sleep or wakes it, and calls `done`. Errors: a failure of the device or the
  // host that the loop cannot survive, thrown after `done` was called with it.
  void receive(SleepOrWake& change);
  // Calls the message's `done`, at most once.
  static void answer(SleepOrWake& change, const std::optional<Refusal>& failure);
  void post(SleepOrWake change);
  // Changes the adapters. Returns the reason where that fails.
  std::optional<Refusal> change_adapters(const std::function<void(loader::Adapters&)>& change);
  // Returns Engine::page_chain() of each submission. Copies of one prompt in a row are hashed once.
  [[nodiscard]] std::vector<kv::PageChain> page_chains(
      const std::vector<Submission>& submissions) const;
  // Returns the refusal that closed() returns. REQUIRES: the mutex is held.
  [[nodiscard]] std::optional<Refusal> refusal() const;
  // Marks a request, so that deliver() calls its sink.
  void touch(Live& live);
  // Publishes the statistics, then calls the sinks of the marked requests.
  void deliver(bool is_idle);
  // Ends every live request with this ending, and every request whose message is not acted on yet.
  // Messages that ask for sleep or wake are answered with a failure.
  void end_all(const Ending& ending);
  // Publishes the statistics. `num_ended`: requests that ended since the last time.
  void publish_statistics(int64_t num_ended, bool is_idle);

  Engine engine_;
  int64_t capacity_;

  // The fields below belong to the engine's thread.
  boost::unordered_flat_map<SequenceId, std::unique_ptr<Live>> live_;
  std::unordered_map<RequestId, SequenceId> sequences_;
  std::vector<Live*> touched_;
  std::deque<Message> received_;  // messages taken from the inbox and not acted on yet
  GeneratorStatistics counts_;
  std::chrono::steady_clock::time_point steps_counted_at_;

  // The fields below are shared by all threads and guarded by the mutex.
  mutable std::mutex mutex_;
  std::condition_variable wakes_;
  State state_ = State::kOpen;
  bool is_asleep_ = false;
  std::string failure_;  // message of the device's failure
  RequestId next_id_ = 1;
  int64_t num_live_ = 0;  // requests taken that have no ending yet
  std::deque<Message> inbox_;
  GeneratorStatistics published_;
};

}  // namespace encore::engine
