// Requests served by a real engine: simulated clients, in this process, of the loop that a server
// runs.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "backend/tracer.h"
#include "engine/serving_loop.h"
#include "planning/step_log.h"
#include "traffic/record.h"

namespace encore::measure {

// A grammar without a text: half of the vocabulary may come, another half after each token. Its
// masks cost the host a copy.
std::shared_ptr<const sample::TokenGrammar> half_of_vocabulary(int64_t vocab_size, uint64_t seed);

// Adds up what steps took. Threads: the engine's, and then whoever has joined it.
class StepTotals {
 public:
  void add(const planning::LoggedStep& step);

  [[nodiscard]] const traffic::DeviceTime& decode() const { return decode_; }
  [[nodiscard]] const traffic::DeviceTime& mixed() const { return mixed_; }

 private:
  traffic::DeviceTime decode_;
  traffic::DeviceTime mixed_;
};

// The idle times between replays of whole steps. REQUIRES: a trace of replays, whose steps begin
// when what the host sends for them is enqueued and their launches are not: StepHooks::before.
traffic::DeviceIdle device_idle(const Trace& trace);

struct ServedTrafficOptions {
  // Called a few times a second with how many requests have ended and the seconds since the start.
  // True: enough, the rest is aborted. Threads: one of those that serve_on() starts.
  std::function<bool(int64_t num_ended, double now_s)> on_progress = [](int64_t, double) {
    return false;
  };
  // Device memory in use in all; nothing: it is the host's. Threads: one of those that serve_on() starts.
  std::function<std::optional<int64_t>()> device_bytes = [] { return std::nullopt; };
  // Called with the tokens of each delivery. Threads: the engine's.
  std::function<void(size_t request, std::span<const int32_t> tokens)> on_tokens =
      [](size_t, std::span<const int32_t>) {};
};

// Runs `loop` on the calling thread until every request has ended; the clients have a thread of
// their own, which submits each request at the time of its arrival, those of one time together, and
// aborts those whose clients leave. The record's device times are for the caller to add.
// Errors: those of ServingLoop::run(); kUsage when a request was refused.
// REQUIRES: requests in the order of their arrival; a loop that is new and takes all of them.
traffic::TrafficRecord serve_on(engine::ServingLoop& loop,
                                std::span<const traffic::Request> requests,
                                const ServedTrafficOptions& options = {});

}  // namespace encore::measure
