// Implements the functions of libencore.so: holds a model, its loop, and the threads that run them.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "config/settings.h"
#include "engine/generator.h"
#include "library/parameters.h"
#include "library/request.h"

namespace encore::library {

// Holds a conversation: messages in the form that /v1/chat/completions takes.
struct Chat {
  json::array messages;
};
// Holds the prompt of a request as a text, as token ids, or as a conversation.
using Prompt = std::variant<std::string, std::vector<int32_t>, Chat>;

struct Statistics {
  engine::GeneratorStatistics generator;
  std::array<int64_t, kNumFinishes> finished = {};  // number of ended requests, by Finish
};

// Runs a model for the callers of libencore.so. One thread loads the model and runs its steps. A
// second thread turns tokens into text, so that no step waits for that.
// Threads: any thread may call any function, but after close() only abort() may be called.
class Engine {
 public:
  // Loads the model. Errors: those of setup/open.h.
  explicit Engine(const config::Settings& settings);
  ~Engine() { close(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Submits a request. Waits up to seconds for the request's grammar to be compiled.
  // Errors: kUsage for a text where the model has no tokenizer, for a conversation that the model's
  // template refuses, and for an invalid grammar; kUnsupported as Tokenizer::encode().
  std::variant<std::shared_ptr<Request>, engine::Refusal> submit(const Prompt& prompt,
                                                                 const Parameters& parameters);
  // Ends a request soon, unless it has ended. Does nothing once the engine is closed.
  void abort(const Request& request);
  // Loads or unloads an adapter as the functions of engine::Generator do. Returns a refusal with
  // its reason where that is not possible.
  std::optional<engine::Refusal> load_adapter(const std::string& name, const std::string& path,
                                              bool replaces);
  std::optional<engine::Refusal> unload_adapter(const std::string& name);
  // Takes no more requests and waits until all have ended. Returns whether they have ended before
  // the timeout; the statistics are final then.
  bool drain(Timeout timeout);
  [[nodiscard]] Statistics statistics() const;
  // Aborts all requests, waits until they have ended, and releases the model.
  void close();

 private:
  struct Model;
  // Holds tokens of a request on their way from the thread that runs steps to the thread that makes
  // texts.
  struct Delivery {
    std::shared_ptr<Request> request;  // shared with the submitter and with the sink
    std::vector<int32_t> tokens;
    std::vector<LogprobRow> logprobs;
    int64_t num_cached = 0;
    std::optional<engine::Ending> ending;
  };

  void run_steps(const config::Settings& settings, std::promise<void>& opened);
  [[nodiscard]] std::vector<int32_t> tokens_of(const Prompt& prompt,
                                               const Parameters& parameters) const;
  [[nodiscard]] engine::Sink sink(std::shared_ptr<Request> request);
  void make_texts();
  void deliver(const Delivery& delivery);
  void count_live(int64_t change);

  Model* model_ = nullptr;  // null before opening and after closing; owned by run_steps()

  // Guards Request::id, and keeps close() from clearing model_ while submit() or abort() uses it.
  std::mutex submit_mutex_;

  // Guards the fields below, except the threads.
  mutable std::mutex mutex_;
  std::condition_variable arrives_;  // notified when a delivery arrives or is_closing_ is set
  std::condition_variable ends_;     // notified when a request or the last step ends
  std::vector<Delivery> deliveries_;
  int64_t num_live_ = 0;  // requests submitted that have not ended
  std::array<int64_t, kNumFinishes> finished_ = {};
  bool has_run_ = false;  // true once the loop has run its last step
  bool is_closing_ = false;

  std::promise<void> closes_;
  std::thread steps_;
  std::thread texts_;
};

}  // namespace encore::library
