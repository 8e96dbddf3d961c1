// The gain of speculation is predicted here from the parts of a step, and steps with drafts are timed beside it.
#pragma once

#include <cstdint>

#include "measure/decoding.h"

namespace encore::measure {

// The times that a step with drafts is made of, each measured by itself. Units: milliseconds
struct SpeculationTimes {
  double plain_ms = 0;   // a decode step without drafts
  double draft_ms = 0;   // a step of the draft model; 0: drafts are looked up
  double verify_ms = 0;  // a step that checks drafts which no model makes

  // c and v: those in units of a step without drafts.
  [[nodiscard]] double draft_cost() const { return draft_ms / plain_ms; }
  [[nodiscard]] double verify_cost() const { return verify_ms / plain_ms; }
  // The step where draft and verification are recordings of their own, one behind the other.
  [[nodiscard]] double apart_ms(int64_t num_drafts) const {
    return verify_ms + static_cast<double>(num_drafts) * draft_ms;
  }
  // The speed-up by a step of `tokens` tokens a sequence, on average, where checking costs as much as a
  // step without drafts: E / (cK + 1).
  [[nodiscard]] double with_free_checks(double tokens, int64_t num_drafts) const {
    return tokens / (draft_cost() * static_cast<double>(num_drafts) + 1);
  }
  // Returns the speed-up where checking has its cost: E / (cK + v).
  [[nodiscard]] double predicted(double tokens, int64_t num_drafts) const {
    return tokens * plain_ms / apart_ms(num_drafts);
  }
};

// Decode steps, on average over a run.
struct TimedSteps {
  double step_ms = 0;
  double tokens_per_step = 0;  // of a sequence
  double tokens_per_s = 0;     // of all sequences
};
// Times steps, in milliseconds, each of which is `num_drafts` steps of one engine, whose tokens the host awaits, and
// then one of another, which checks as many: drafts and verification as recordings apart. What is checked are
// other tokens than those, as many. REQUIRES: neither engine runs ahead of the host.
double time_apart(engine::Engine& drafting, engine::Engine& checking, int64_t num_drafts,
                  const DecodingOptions& options);
// Times `options.steps` steps of an engine, whose sequences it ends.
TimedSteps time_decoding(engine::Engine& engine, const DecodingOptions& options);

}  // namespace encore::measure
