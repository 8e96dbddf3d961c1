// Compares the ways to run a step bit for bit: every recording with the eager run, before the model
// serves (--graphs-debug), and one step launch by launch (encore bisect).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/trial_step.h"

namespace encore::diagnose {

// Returns the element at `data` of a value that read_value() returned.
double element(const std::byte* data, DType dtype);

// Describes where a value differs between two runs.
struct Difference {
  std::string value;  // name of the value in the graph
  int64_t row = 0;
  int64_t column = 0;
  double eager = 0;
  double other = 0;
  int64_t elements = 0;  // number of elements that differ
};
// Describes a difference in words. Example:
// "%x differs in 3 elements, first at row 1, column 7: 0.5 eager, 0.25 piecewise".
std::string describe(const Difference& difference, runtime::Mode mode);

// Runs a step eagerly and as the executor serves it now, and compares everything that it leaves:
// its outputs, the inputs of the next step, and the KV pages that it writes to. Both runs start the
// same way, with intermediate memory filled with NaN, and KV is restored at the end. Returns
// nothing if all bits are equal.
std::optional<Difference> compare_outputs(loader::LoadedModel& model, const TrialStep& step,
                                          uint64_t seed);

// Describes a recording whose results differ from the eager run.
struct Mismatch {
  std::string step;  // "a uniform step of 8 sequences"
  runtime::Choice choice;
  Difference difference;
};
struct Verification {
  int steps = 0;    // steps compared; together they replay every recording
  int skipped = 0;  // steps that are too large for the KV pool
  std::vector<Mismatch> mismatches;
};
// Replays every recording once and compares it with the eager run. It overwrites KV pages, so no
// sequence may be in flight.
Verification verify_recordings(loader::LoadedModel& model);

// Fails unless every recording gives the results of the eager run. Errors: kCompile; the message
// names the first recording that does not, and the remedy.
void require_equal_recordings(loader::LoadedModel& model);

// Describes the first launch whose result differs between the eager run and `mode`.
struct FirstDifference {
  int segment = 0;
  // The index of the launch in the step, from 0.
  int launch = 0;
  int node = 0;
  std::string op;
  std::string kernel;
  Difference difference;
};
struct Bisection {
  int launches = 0;  // launches compared
  std::optional<FirstDifference> first;
};
// Runs longer and longer prefixes of the step both ways, to find the first launch that differs. It
// overwrites KV pages.
Bisection bisect(loader::LoadedModel& model, const TrialStep& step, runtime::Mode mode,
                 uint64_t seed);

}  // namespace encore::diagnose
