// The page of `encore graphs --html`: one file, nothing loaded from elsewhere.
#pragma once

#include <string>
#include <vector>

#include "cli/ladder_report.h"

namespace encore::cli {

// How often something was so, for a bar of parts.
struct Share {
  std::string name;
  int64_t steps = 0;
};

// What the page shows of one ladder.
struct LadderPlot {
  Workload workload;
  PricedLadder chosen;
  std::vector<PricedLadder> others;  // to compare with
};

struct GraphsPage {
  std::string log;
  int64_t num_steps = 0;
  double hit_rate = 0;
  int64_t padding = 0;
  std::vector<Share> reasons;  // why steps run, or ran, eager or otherwise than wanted
  std::vector<Share> modes;    // as logged; empty when the log does not say
  std::vector<LadderPlot> ladders;
  std::vector<Share> admissible;  // of all steps that may be asked for, how they would be walked
};

// The page. Text from the log is escaped.
std::string graphs_html(const GraphsPage& page);

}  // namespace encore::cli
