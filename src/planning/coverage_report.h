// encore graphs --coverage and --eligibility: which steps are replayed, before there are any.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "planning/coverage.h"
#include "runtime/executor.h"

namespace encore::planning {

// The coverage of a model loaded with some options, if every recording succeeds.
struct PlannedCoverage {
  runtime::Limits limits;
  runtime::Coverage coverage;
  CoverageReport report;
};

// `load` has its limits and ladders; empty ladders are the default ones. `recordable`: which steps of
// the program can be one recording.
// Errors: those of require_coverage, under --eager-steps forbid.
PlannedCoverage plan_coverage(const runtime::ExecutorOptions& load,
                              const runtime::Recordable& recordable = {});

// The limits in a line: "steps of up to 64 sequences and 2048 tokens, 512 where they are mixed".
std::string limits_text(const runtime::Limits& limits);
// "100.00 % of 4190209 admissible steps are replayed; 0 eager".
std::string coverage_line(const CoverageReport& report);
// The limits, the share covered, a table of steps by way and reason, the most padded steps.
std::string coverage_text(const PlannedCoverage& planned);
json::object coverage_json(const PlannedCoverage& planned);

// The eligibility table.
std::string eligibility_text();
json::array eligibility_json();

}  // namespace encore::planning
