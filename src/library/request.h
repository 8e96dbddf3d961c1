// Holds one request of the library, with the part of its answer that the caller has not read yet.
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
  std::vector<LogprobRow> logprobs;  // one a token, where the request asks for them
  int64_t num_cached = 0;            // tokens of the prompt that the prefix cache had
  std::optional<Finish> finish;
  std::string error;  // of kError
};

// How long a caller waits; absent: without a limit.
using Timeout = std::optional<std::chrono::milliseconds>;

// Threads: one calls read() and give(), another one next().
// Lifetime: the tokenizer must outlive the read() that finds the end.
class Request {
 public:
  // `output` turns tokens into text; absent: the request gets tokens only.
  explicit Request(std::optional<text::OutputText> output) : output_(std::move(output)) {}

  // Takes tokens that the engine delivers and returns what the caller gets of them: the text, and
  // no token behind the end of the answer.
  Update read(const engine::Update& delivered);
  // Adds `update` to what next() will return.
  void give(Update update);
  // Waits for something new and returns all of it. Returns at once when the request has ended, with
  // its end.
  Update next(Timeout timeout);
  [[nodiscard]] bool has_ended() const;

  engine::RequestId id = 0;  // the generator's; guarded by the engine that set it
  size_t num_top = 0;        // entries that a row of log probabilities has; set before the first

 private:
  // The thread that calls read() uses these two.
  std::optional<text::OutputText> output_;
  bool is_over_ = false;

  mutable std::mutex mutex_;
  std::condition_variable arrives_;
  Update unread_;
  bool has_news_ = false;
};

}  // namespace encore::library
