// Makes up steps of random tokens whose sequences have a past. They serve to compare and to time
// the ways to run a step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "loader/loaded_model.h"
#include "sample/params.h"

namespace encore::diagnose {

// Describes the sequences of one step.
struct TrialStep {
  struct Sequence {
    int64_t past = 0;            // tokens in the cache
    int64_t count = 0;           // new tokens
    std::vector<int32_t> pages;  // pages of past and new tokens, in order
    SamplingRow sampling;
    int32_t adapter = -1;  // adapter slot; -1: no adapter
    // The pages in layers with a window, where these have pages of their own. Pages that no new
    // token sees are kv::kNoPage.
    kv::WindowPages window = {};
  };
  std::vector<Sequence> sequences;
  // The number of drafts that a sequence of a mixed step has room for. No sequence has any.
  int drafts = 0;

  [[nodiscard]] StepKey key(const runtime::Limits& limits) const;
  [[nodiscard]] StepLengths lengths() const;
};

// Makes a step of that key. Its sequences have different pasts, as long as the KV pool allows; some
// are greedy and some are not. Returns nothing when the pools have too few pages for all sequences.
std::optional<TrialStep> trial_step(const loader::LoadedModel& model, const StepKey& key);

// Fills every page with random numbers, which a trial step reads as its past. No sequence may be in
// flight.
void fill_kv(loader::LoadedModel& model, uint64_t seed, float stddev = 0.5F);

// Chooses the way to run the step (Executor::begin) and writes the step's inputs. Its tokens depend
// on `seed` only. No sequence ends with the step.
runtime::Choice begin(loader::LoadedModel& model, const TrialStep& step, uint64_t seed);

}  // namespace encore::diagnose
