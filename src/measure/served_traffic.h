// Serves requests on a real engine: simulated clients submit them, within this process, to the loop
// that a server runs.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "backend/tracer.h"
#include "engine/serving_loop.h"
#include "planning/step_log.h"
#include "traffic/record.h"

namespace encore::measure {

// Makes a grammar that allows a random half of the vocabulary; after each token the allowed half
// and the other half change places. Filling a mask costs the host one copy.
std::shared_ptr<const sample::TokenGrammar> half_of_vocabulary(int64_t vocab_size, uint64_t seed);

// Adds up the device time of decode steps and of mixed steps.
// Threads: the engine's thread; after that has ended, the thread that joined it.
class StepTotals {
 public:
  void add(const planning::LoggedStep& step);

  [[nodiscard]] const traffic::DeviceTime& decode() const { return decode_; }
  [[nodiscard]] const traffic::DeviceTime& mixed() const { return mixed_; }

 private:
  traffic::DeviceTime decode_;
  traffic::DeviceTime mixed_;
};

// Returns the idle times of the device between replays of successive whole steps. REQUIRES: a trace
// of replays in which a new step begins after the step's inputs are enqueued and before its
// launches are (StepHooks::before).
traffic::DeviceIdle device_idle(const Trace& trace);

struct ServedTrafficOptions {
  // Is called a few times a second with the number of requests that have ended and the seconds
  // since the start. If it returns true, the remaining requests are aborted. Threads: the clients'
  // thread, which serve_on() starts.
  std::function<bool(int64_t num_ended, double now_s)> on_progress = [](int64_t, double) {
    return false;
  };
  // Returns the device's total memory in use, or nothing where the device's memory is the host's.
  // Threads: the clients' thread, which serve_on() starts.
  std::function<std::optional<int64_t>()> device_bytes = [] { return std::nullopt; };
  // Is called with the tokens of each delivery. Threads: the engine's thread.
  std::function<void(size_t request, std::span<const int32_t> tokens)> on_tokens =
      [](size_t, std::span<const int32_t>) {};
};

// Runs `loop` on the calling thread until every request has ended. The clients run on a thread of
// their own: it submits each request at its time of arrival, requests of one time together, and
// aborts requests whose clients leave. The caller adds the device times to the record.
// Errors: those of ServingLoop::run(); kUsage when a request was refused.
// REQUIRES: `requests` in the order of their arrival; a new loop that accepts all of them.
traffic::TrafficRecord serve_on(engine::ServingLoop& loop,
                                std::span<const traffic::Request> requests,
                                const ServedTrafficOptions& options = {});

}  // namespace encore::measure
