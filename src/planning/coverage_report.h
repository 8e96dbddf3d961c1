// Reports which steps will be replayed, before any is recorded, for `encore graphs --coverage` and
// `--eligibility`.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "planning/coverage.h"
#include "runtime/executor.h"

namespace encore::planning {

// Holds the coverage of a model with its limits, under the assumption that every recording
// succeeds.
struct PlannedCoverage {
  runtime::Limits limits;
  runtime::Coverage coverage;
  CoverageReport report;
};

// Computes the coverage of a model loaded with the options `load`, whose empty ladders stand for
// the default ones. `recordable` says which steps of the program can be one recording.
PlannedCoverage plan_coverage(const runtime::ExecutorOptions& load,
                              const runtime::Recordable& recordable = {});

// Returns the limits in one line: "steps of up to 64 sequences and 2048 tokens, 512 where they are
// mixed".
std::string limits_text(const runtime::Limits& limits);
// Returns a line such as "100.00 % of 4190209 admissible steps are replayed; 0 eager".
std::string coverage_line(const CoverageReport& report);
// Returns a text for people: the limits, the share of steps that are replayed, a table of steps by
// mode and reason, and the most padded steps.
std::string coverage_text(const PlannedCoverage& planned);
json::object coverage_json(const PlannedCoverage& planned);

// Returns the eligibility table.
std::string eligibility_text();
json::array eligibility_json();

}  // namespace encore::planning
