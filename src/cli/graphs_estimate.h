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

// The cost model says here how much memory the recordings of a ladder take.
struct RecordingMemory {
  // Bytes of whole decode steps, or of whole steps with prompts.
  std::function<int64_t(bool is_decode, const runtime::Ladder& ladder)> bytes;
  int64_t kv_bytes_per_token = 0;

  // The number of tokens whose K and V would fit in that memory.
  [[nodiscard]] int64_t kv_tokens(bool is_decode, const runtime::Ladder& ladder) const;
};
// That of --model and the kernels of --device, with steps of at most so many sequences. Errors: as below.
RecordingMemory recording_memory(const config::Settings& settings, int64_t max_batch_size);

// Prints nodes, time and memory by size, and what is covered. Errors: those of compiling the model;
// kUsage for ladders above the limits.
void estimate_graphs(const GraphsOptions& options);

}  // namespace encore::cli
