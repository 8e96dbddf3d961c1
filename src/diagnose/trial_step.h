// Made-up steps: random tokens of sequences with a past, for comparing and timing the ways a step
// is run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "loader/loaded_model.h"
#include "sample/params.h"

namespace encore::diagnose {

// The sequences of one step.
struct TrialStep {
  struct Sequence {
    int64_t past = 0;            // tokens in the cache
    int64_t count = 0;           // new tokens
    std::vector<int32_t> pages;  // in order, for all of them
    SamplingRow sampling;
    int32_t adapter = -1;  // slot; -1: none
    // The pages of layers with a window, where those have their own: kv::kNoPage for those that no new
    // token sees.
    kv::WindowPages window = {};
  };
  std::vector<Sequence> sequences;
  int drafts = 0;  // that a sequence of a mixed step has room for; none has any

  [[nodiscard]] StepKey key(const runtime::Limits& limits) const;
  [[nodiscard]] StepLengths lengths() const;
};

// Makes a step of that key. Its sequences have different pasts, as long as the KV pool allows, and
// some are greedy and some not. Returns nothing when the pools have not the pages for all sequences.
std::optional<TrialStep> trial_step(const loader::LoadedModel& model, const StepKey& key);

// Fills every page with random numbers: what a trial step finds as its past. No sequence may be in
// flight.
void fill_kv(loader::LoadedModel& model, uint64_t seed, float stddev = 0.5F);

// Chooses the way (Executor::begin) and writes the step's inputs, its tokens a function of `seed`.
// No sequence ends with the step.
runtime::Choice begin(loader::LoadedModel& model, const TrialStep& step, uint64_t seed);

}  // namespace encore::diagnose
