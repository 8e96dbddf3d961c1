// The page of `encore graphs --html`: one file, nothing loaded from elsewhere.
#pragma once

#include <string>
#include <vector>

#include "planning/coverage_report.h"
#include "planning/ladder_report.h"

namespace encore::measure {

// A ladder on the page: the steps it is asked for, its price, and other ladders to compare.
struct LadderPlot {
  planning::Workload workload;
  planning::PricedLadder chosen;
  std::vector<planning::PricedLadder> others;  // to compare with
};

struct GraphsPage {
  std::string log;
  int64_t num_steps = 0;
  double hit_rate = 0;
  int64_t padding = 0;
  std::vector<planning::Share> reasons;  // why steps run, or ran, eager or otherwise than wanted
  std::vector<planning::Share> modes;    // as logged; empty when the log does not say
  std::vector<LadderPlot> ladders;
  std::vector<planning::Share>
      admissible;  // of all steps that may be asked for, how they would be run
};

// Writes the page. Text from the log is escaped.
std::string graphs_html(const GraphsPage& page);

}  // namespace encore::measure
