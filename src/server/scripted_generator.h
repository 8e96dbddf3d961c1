// Answers requests from a file instead of a model, for people who build and test clients.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "text/tokenizer.h"

namespace encore::server {

// The content of a script. Its file has JSON such as:
//   {"token_ms": 20,
//    "answers": [{"when": "weather", "text": "It rains."}, {"text": "I do not know."}]}
struct Script {
  struct Answer {
    std::string when;  // the answer is for prompts that contain this text; empty: all prompts
    std::string text;
  };
  std::chrono::milliseconds token_time{0};
  std::vector<Answer> answers;  // a request gets the first that matches, or else an empty text

  // Reads a script from its file. Errors: kUsage, naming the file, if it is not a script.
  static Script load(const std::filesystem::path& path);
};

// Generates, for each request, the tokens of its scripted answer and then the model's end token.
// The first token comes at once, and each later one `token_time` after the token before it. If a
// request does not stop at the end token, the answer is repeated until the request's maximal
// length. Threads: as for engine::Generator. Lifetime: the tokenizer must outlive it.
class ScriptedGenerator final : public engine::Generator {
 public:
  struct Limits {
    int64_t max_seq_len = 4096;
    int64_t capacity = 1024;
  };
  ScriptedGenerator(Script script, const text::Tokenizer& tokenizer, int32_t end_token,
                    const Limits& limits);

  void run() override;
  void drain() override;
  void stop() override;
  std::variant<std::vector<engine::RequestId>, engine::Refusal> submit(
      std::vector<engine::Submission> submissions) override;
  void abort(engine::RequestId id) override;
  [[nodiscard]] int64_t capacity() const override { return limits_.capacity; }
  [[nodiscard]] engine::GeneratorStatistics statistics() const override;
  [[nodiscard]] std::optional<engine::Refusal> closed() const override;
  // Refuses to sleep, because there is no device memory to free.
  void sleep(engine::SleepDepth depth, engine::Done done) override;
  void wake(engine::Done done) override;
  std::optional<engine::Refusal> load_adapter(const std::string& name, const std::string& path,
                                              bool replaces) override;
  std::optional<engine::Refusal> unload_adapter(const std::string& name) override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : uint8_t { kOpen, kDraining, kStopped };
  struct Live {
    engine::Request request;
    engine::Sink sink;
    std::vector<int32_t> tokens;
    int64_t num_given = 0;
    Clock::time_point due;  // when the request's next token is due; min() if aborted
  };
  struct Call {
    engine::Sink sink;
    std::vector<int32_t> tokens;
    std::optional<engine::Ending> ending;
  };

  [[nodiscard]] std::vector<int32_t> answer_to(const engine::Request& request) const;
  // Returns the value of closed(), which says why the generator takes no requests. REQUIRES: mutex_
  // is held.
  [[nodiscard]] std::optional<engine::Refusal> refusal() const;
  // Returns, for each request that is due by `until`, its next token or its ending.
  std::vector<Call> step(Clock::time_point until);
  // Returns the next token of one request, or its ending.
  Call next(Live& live);

  Script script_;
  const text::Tokenizer& tokenizer_;
  int32_t end_token_;
  Limits limits_;

  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable wakes_;
  State state_ = State::kOpen;
  engine::RequestId next_id_ = 1;
  std::map<engine::RequestId, Live> live_;
  // All live requests, sorted by the time when their next token is due.
  std::set<std::pair<Clock::time_point, engine::RequestId>> due_;
  engine::GeneratorStatistics counts_;
};

}  // namespace encore::server
