// The ways a step is run, compared bit for bit: every recording against the eager run before it
// serves (--graphs-debug), and one step launch by launch (encore bisect).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/trial_step.h"

namespace encore::diagnose {

// An element of a value that read_value() gave.
double element(const std::byte* data, DType dtype);

// The place where a value differs between two runs.
struct Difference {
  std::string value;  // of the graph
  int64_t row = 0;
  int64_t column = 0;
  double eager = 0;
  double other = 0;
  int64_t elements = 0;  // that differ
};
// Describes a difference in words:
// "%x differs in 3 elements, first at row 1, column 7: 0.5 eager, 0.25 piecewise".
std::string describe(const Difference& difference, runtime::Mode mode);

// Runs a step eagerly and as it is served now, and compares all it leaves: its outputs, the inputs
// of the next step, and the KV pages it writes to. Both runs start the same way, with intermediate
// memory filled with NaN, and KV is put back at the end. Returns nothing if the bits are equal.
std::optional<Difference> compare_outputs(loader::LoadedModel& model, const TrialStep& step,
                                          uint64_t seed);

// A recording that did not give the results of the eager run.
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
Verification verify_recordings(loader::LoadedModel& model);

// Checks that every recording gives the results of the eager run. Errors: kCompile naming the first
// recording that does not, and the remedy.
void require_equal_recordings(loader::LoadedModel& model);

// The first launch whose result differs between the eager run and `mode`.
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
// Runs longer and longer prefixes of the step both ways. Scribbles over the KV pages.
Bisection bisect(loader::LoadedModel& model, const TrialStep& step, runtime::Mode mode,
                 uint64_t seed);

}  // namespace encore::diagnose
