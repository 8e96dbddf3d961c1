// A launch of the engine whose steps have not been collected, or not all.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/device.h"
#include "engine/step_counts.h"
#include "loader/adapters.h"
#include "runtime/dispatch.h"
#include "runtime/prompt_scorer.h"
#include "runtime/token_ring.h"
#include "sched/step_loop.h"

namespace encore::engine {

// A position whose follower, a token of a prompt, a step scores.
struct ScoredToken {
  sched::SequenceId sequence = 0;
  int64_t position = 0;
};

struct InFlightStep : sched::LaunchedStep {
  runtime::Choice choice;
  runtime::StepNumber first = 0;
  int64_t num_collected = 0;          // steps
  HostTimes::Clock::duration host{};  // to launch it
  std::chrono::steady_clock::time_point launched_at;
  std::unique_ptr<Event> began;  // where steps are measured
  std::unique_ptr<Event> ended;  // where steps are measured, and of a burst
  int64_t max_burst_steps = 0;   // that pages were granted for; 0: a single step
  bool is_interrupted = false;
  std::chrono::steady_clock::time_point looked_at = {};                  // last, at a burst
  std::vector<ScoredToken> scored;                                       // in the order of `scores`
  std::vector<std::shared_ptr<const loader::ResidentAdapter>> adapters;  // that its rows read
  runtime::PromptScorer::InFlight scores;
};

}  // namespace encore::engine
