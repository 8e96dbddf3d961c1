// Answers from a file in place of a model: for those who build and test clients.
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

// The content of a script. As JSON:
//   {"token_ms": 20,
//    "answers": [{"when": "weather", "text": "It rains."}, {"text": "I do not know."}]}
struct Script {
  struct Answer {
    std::string when;  // a part of the prompt's text; empty: any prompt
    std::string text;
  };
  std::chrono::milliseconds token_time{0};
  std::vector<Answer> answers;  // a request gets the first that fits, or an empty text

  // Errors: kUsage, naming the file, when it is no script.
  static Script load(const std::filesystem::path& path);
};

// Gives every request the tokens of its answer and then the model's end token, the first at once
// and each of the others `token_time` behind the one before it. Where no token ends the request,
// the answer begins anew until its length is reached. Threads: as Generator. Lifetime: the
// tokenizer must outlive it.
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
  // Refuses: there is no memory to give back.
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
    Clock::time_point due;  // its next token; min(): it is aborted
  };
  struct Call {
    engine::Sink sink;
    std::vector<int32_t> tokens;
    std::optional<engine::Ending> ending;
  };

  [[nodiscard]] std::vector<int32_t> answer_to(const engine::Request& request) const;
  // Returns what closed() returns. REQUIRES: the mutex is held.
  [[nodiscard]] std::optional<engine::Refusal> refusal() const;
  // Returns the next token, or the ending, of all requests that are due by then.
  std::vector<Call> step(Clock::time_point until);
  // Returns the next token or the ending of one request.
  Call next(Live& live);

  Script script_;
  const text::Tokenizer& tokenizer_;
  int32_t end_token_;
  Limits limits_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wakes_;
  State state_ = State::kOpen;
  engine::RequestId next_id_ = 1;
  std::map<engine::RequestId, Live> live_;
  std::set<std::pair<Clock::time_point, engine::RequestId>> due_;  // all of them
  engine::GeneratorStatistics counts_;
};

}  // namespace encore::server
