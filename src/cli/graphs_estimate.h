// encore graphs --estimate: what the recordings of a model will cost, before there are any.
#pragma once

#include <functional>
#include <string>

#include "cli/options.h"

namespace encore::cli {

// The flags of `encore graphs`.
struct GraphsOptions {
  config::Settings settings;
  std::string log;
  std::string html;
  bool estimate = false;
  bool measure = false;
  int64_t replays = 0;  // of every size, between two looks at the driver's figure
  bool coverage = false;
  bool eligibility = false;
  bool compatibility = false;
  bool json = false;
};

// The limits and ladders that the flags give, without a log: 512 sequences and 2048 tokens where
// they say nothing.
loader::LoadOptions graphs_load_options(const GraphsOptions& options);

// The number of tokens whose K and V would fit in the memory that a ladder's recordings take, by
// the cost model, for --model: full recordings of decode steps, or pieces by tokens. Errors: as
// below.
std::function<int64_t(bool is_decode, const runtime::Ladder& ladder)> kv_tokens_displaced(
    const GraphsOptions& options);

// Prints nodes, time and memory by size, and what is covered. Errors: those of compiling the model;
// kUsage for ladders above the limits.
void estimate_graphs(const GraphsOptions& options);

}  // namespace encore::cli
