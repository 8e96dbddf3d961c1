// Implements the library's functions: a model, its loop, and the threads that run them.
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

// Messages in the form of the chat API.
struct Chat {
  json::array messages;
};
// Text, tokens, or a conversation.
using Prompt = std::variant<std::string, std::vector<int32_t>, Chat>;

struct Statistics {
  engine::GeneratorStatistics generator;
  std::array<int64_t, kNumFinishes> finished = {};  // requests, by Finish
};

// One thread loads the model and runs its steps; another one makes tokens texts, so that no step waits for that.
// Threads: any, but close() is the last call besides abort().
class Engine {
 public:
  // Loads the model. Errors: those of setup/open.h.
  explicit Engine(const config::Settings& settings);
  ~Engine() { close(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Waits for the request's grammar to be compiled, up to seconds.
  // Errors: kUsage for text where the model has no tokenizer, for a conversation that its template
  // does not take, and for a grammar; kUnsupported as Tokenizer::encode().
  std::variant<std::shared_ptr<Request>, engine::Refusal> submit(const Prompt& prompt,
                                                                 const Parameters& parameters);
  // Ends a request soon, unless it has ended. Does nothing once the engine is closed.
  void abort(const Request& request);
  // As engine::Generator has them. Why not, where it is not done.
  std::optional<engine::Refusal> load_adapter(const std::string& name, const std::string& path,
                                              bool replaces);
  std::optional<engine::Refusal> unload_adapter(const std::string& name);
  // Takes no more requests, and waits for the end of all. Have they ended? The statistics are then final.
  bool drain(Timeout timeout);
  [[nodiscard]] Statistics statistics() const;
  // Ends all requests, waits for that, and gives the model back.
  void close();

 private:
  struct Model;
  // Tokens of a request on their way from the thread that runs steps to the one that makes texts.
  struct Delivery {
    std::shared_ptr<Request> request;  // shared with who submitted it and with the sink
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

  Model* model_ = nullptr;  // while opened and not closed; run_steps() has it

  // Guards Request::id, and model_ against close().
  std::mutex submit_mutex_;

  // Guards the fields below, except the threads.
  mutable std::mutex mutex_;
  std::condition_variable arrives_;  // a delivery, or is_closing_
  std::condition_variable ends_;     // a request, or the last step
  std::vector<Delivery> deliveries_;
  int64_t num_live_ = 0;  // taken, or about to be, and without an end
  std::array<int64_t, kNumFinishes> finished_ = {};
  bool has_run_ = false;  // the last step
  bool is_closing_ = false;

  std::promise<void> closes_;
  std::thread steps_;
  std::thread texts_;
};

}  // namespace encore::library
