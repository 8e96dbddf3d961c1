// Describes a launch of the engine whose steps are not all collected yet.
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

// A position of a prompt whose next token, which is of the prompt too, is scored by a step.
struct ScoredToken {
  sched::SequenceId sequence = 0;
  int64_t position = 0;
};

struct InFlightStep : sched::LaunchedStep {
  runtime::Choice choice;
  runtime::StepNumber first = 0;
  int64_t num_collected = 0;          // steps collected so far
  HostTimes::Clock::duration host{};  // host's time to launch the step
  std::chrono::steady_clock::time_point launched_at;
  std::unique_ptr<Event> began;  // set where steps are measured
  std::unique_ptr<Event> ended;  // set where steps are measured, and for a burst
  // The number of steps that a burst has pages for. 0 for a single step.
  int64_t max_burst_steps = 0;
  bool is_interrupted = false;
  std::chrono::steady_clock::time_point looked_at = {};  // when the host last looked at the burst
  std::vector<ScoredToken> scored;                       // tokens in the order of `scores`
  // The adapters that its rows read.
  std::vector<std::shared_ptr<const loader::ResidentAdapter>> adapters;
  runtime::PromptScorer::InFlight scores;
};

}  // namespace encore::engine
