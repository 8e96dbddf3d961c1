// Implements `encore graphs --estimate`, which predicts the cost of a model's recordings before any
// are made.
#pragma once

#include <functional>
#include <string>

#include "cli/options.h"

namespace encore::cli {

// Holds the flags of `encore graphs`.
struct GraphsOptions {
  config::Settings settings;
  std::string log;
  std::string html;
  bool estimate = false;
  bool measure = false;
  int64_t replays = 0;  // replays of every size between two readings of the driver's memory
  bool coverage = false;
  bool eligibility = false;
  bool compatibility = false;
  bool json = false;
};

// Returns the limits and ladders that the flags give, without a log. The defaults are 512 sequences
// and 2048 tokens.
loader::LoadOptions graphs_load_options(const GraphsOptions& options);

// Predicts by the cost model how much memory the recordings of a ladder take.
struct RecordingMemory {
  // Returns the bytes of the recordings of `ladder`: those of whole decode steps if `is_decode` is
  // true, and otherwise those of whole steps with prompts.
  std::function<int64_t(bool is_decode, const runtime::Ladder& ladder)> bytes;
  int64_t kv_bytes_per_token = 0;

  // Returns how many tokens' K and V would fit in the memory of the ladder's recordings.
  [[nodiscard]] int64_t kv_tokens(bool is_decode, const runtime::Ladder& ladder) const;
};
// Returns the cost model for the model of --model and the kernels of --device, with steps of at
// most `max_batch_size` sequences. Errors: those of estimate_graphs().
RecordingMemory recording_memory(const config::Settings& settings, int64_t max_batch_size);

// Prints the nodes, time and memory of recordings by size, and which steps they cover. Errors:
// those of compiling the model; kUsage for ladders above the limits.
void estimate_graphs(const GraphsOptions& options);

}  // namespace encore::cli
