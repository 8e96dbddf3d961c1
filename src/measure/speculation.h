// Predicts the gain of speculative decoding from the times of a step's parts, and times steps with
// drafts for comparison.
#pragma once

#include <cstdint>

#include "measure/decoding.h"

namespace encore::measure {

// Holds the times of the parts of a step with drafts, each measured by itself. Units: milliseconds.
struct SpeculationTimes {
  double plain_ms = 0;   // a decode step without drafts
  double draft_ms = 0;   // a step of the draft model; 0 where drafts are looked up
  double verify_ms = 0;  // a step that checks drafts, without a draft model

  // Return c and v: the costs of a draft and of a verification step, in units of a step without
  // drafts.
  [[nodiscard]] double draft_cost() const { return draft_ms / plain_ms; }
  [[nodiscard]] double verify_cost() const { return verify_ms / plain_ms; }
  // Returns the time of a step in which each pass of the draft model and the verification are
  // separate recordings that run in sequence.
  [[nodiscard]] double apart_ms(int64_t num_drafts) const {
    return verify_ms + static_cast<double>(num_drafts) * draft_ms;
  }
  // Returns the speed-up if checking drafts cost no more than a step without drafts: E / (cK + 1).
  // `tokens` is E, the mean number of tokens that a sequence gets per step.
  [[nodiscard]] double with_free_checks(double tokens, int64_t num_drafts) const {
    return tokens / (draft_cost() * static_cast<double>(num_drafts) + 1);
  }
  // Returns the speed-up with the measured cost of checking drafts: E / (cK + v). `tokens` is E.
  [[nodiscard]] double predicted(double tokens, int64_t num_drafts) const {
    return tokens * plain_ms / apart_ms(num_drafts);
  }
};

// Holds averages over a run of decode steps.
struct TimedSteps {
  double step_ms = 0;
  double tokens_per_step = 0;  // tokens that one sequence gets per step
  double tokens_per_s = 0;     // tokens of all sequences together
};
// Returns the mean time of a step whose drafts and verification are separate recordings. Each step
// is `num_drafts` steps of the engine `drafting`, whose tokens the host awaits, and then one step
// of the engine `checking`, which verifies as many drafts. The verified drafts are not the ones
// that `drafting` made, but equal in number. Units: milliseconds. REQUIRES: neither engine runs
// ahead of the host.
double time_apart(engine::Engine& drafting, engine::Engine& checking, int64_t num_drafts,
                  const DecodingOptions& options);
// Times `options.steps` decode steps of an engine. The sequences are aborted at the end.
TimedSteps time_decoding(engine::Engine& engine, const DecodingOptions& options);

}  // namespace encore::measure
