// The ways a step is walked, compared bit for bit: every recording against the eager walk before it
// serves (--graphs-debug), and one step launch by launch (encore bisect).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/trial_step.h"

namespace encore::engine {

// Where a value differs between two walks.
struct Difference {
  std::string value;  // of the graph
  int64_t row = 0;
  int64_t column = 0;
  double eager = 0;
  double other = 0;
  int64_t elements = 0;  // that differ
};
// "%x differs in 3 elements, first at row 1, column 7: 0.5 eager, 0.25 piecewise".
std::string describe(const Difference& difference, runtime::Mode mode);

// The outputs of a step walked eagerly and as it is served now. Nothing: they are the same.
std::optional<Difference> compare_outputs(LoadedModel& model, const TrialStep& step, uint64_t seed);

// A recording that did not give what the eager walk gives.
struct Mismatch {
  std::string step;  // "a uniform step of 8 sequences"
  runtime::Choice choice;
  Difference difference;
};
struct Verification {
  int steps = 0;    // compared: between them they replay every recording
  int skipped = 0;  // larger than the KV pool
  std::vector<Mismatch> mismatches;
};
// Replays every recording once. Scribbles over the KV pages: no sequence may be in flight.
Verification verify_recordings(LoadedModel& model);

// Lets pass what replays as it walks. Errors: kCompile naming the first recording that does not,
// and what to do.
void require_equal_recordings(LoadedModel& model);

// The first launch whose result differs between the eager walk and `mode`.
struct FirstDifference {
  int segment = 0;
  int launch = 0;  // of the step, from 0
  int node = 0;
  std::string op;
  std::string kernel;
  Difference difference;
};
struct Bisection {
  int launches = 0;  // compared
  std::optional<FirstDifference> first;
};
// Walks longer and longer prefixes of the step both ways. Scribbles over the KV pages.
Bisection bisect(LoadedModel& model, const TrialStep& step, runtime::Mode mode, uint64_t seed);

}  // namespace encore::engine
