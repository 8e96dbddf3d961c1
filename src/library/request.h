// Holds one request of a program that uses libencore.so, with the part of its answer that the
// program has not read yet.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "text/output_text.h"

namespace encore::library {

enum class Finish : uint8_t { kStop, kLength, kAborted, kError };
inline constexpr size_t kNumFinishes = 4;

struct Update {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<LogprobRow> logprobs;  // one for each token, if the request asks for them
  int64_t num_cached = 0;            // tokens of the prompt that the prefix cache had
  std::optional<Finish> finish;
  std::string error;  // set where `finish` is kError
};

// The longest time that a caller waits. Absent: the wait has no limit.
using Timeout = std::optional<std::chrono::milliseconds>;

// Holds the state of one request. Threads: one thread calls read() and give(), another one calls
// next().
// Lifetime: the tokenizer must outlive the call of read() that finds the end of the answer.
class Request {
 public:
  // `output` turns tokens into text. Where it is absent, the caller gets tokens only.
  explicit Request(std::optional<text::OutputText> output) : output_(std::move(output)) {}

  // Takes tokens that the engine delivers. Returns the update for the caller: the text of the
  // tokens, and the tokens up to the end of the answer.
  Update read(const engine::Update& delivered);
  // Adds `update` to the updates that next() has not returned yet.
  void give(Update update);
  // Waits until there are updates that it has not returned yet, and returns all of them as one.
  // Once the request has ended, it returns at once, with the reason for the end.
  Update next(Timeout timeout);
  [[nodiscard]] bool has_ended() const;

  engine::RequestId id = 0;  // the generator's id; guarded by Engine::submit_mutex_
  size_t num_top = 0;        // entries of a row of log probabilities; set before the first row

 private:
  // Only the thread that calls read() uses output_ and is_over_.
  std::optional<text::OutputText> output_;
  bool is_over_ = false;

  mutable std::mutex mutex_;
  std::condition_variable arrives_;
  Update unread_;
  bool has_news_ = false;
};

}  // namespace encore::library
