// encore graphs --estimate: what the recordings of a model will cost, before there are any.
#pragma once

#include <string>

#include "cli/options.h"

namespace encore::cli {

// The flags of `encore graphs`.
struct GraphsOptions {
  CommonOptions common;
  std::string log;
  std::string html;
  bool estimate = false;
  bool json = false;
};

// Prints nodes, time and memory by size. Errors: those of compiling the model; kUsage for ladders
// above the limits.
void estimate_graphs(const GraphsOptions& options);

}  // namespace encore::cli
