// Measures the cost and the effect of the recordings of one ladder, on a model loaded for it alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rounding.h"
#include "loader/loaded_model.h"
#include "loader/memory_plan.h"
#include "planning/tune.h"

namespace encore::measure {

// Says what a ladder's recordings are of.
enum class LadderOf : uint8_t {
  kSequences,  // decode steps, by sequences
  kTokens,  // whole steps with prompts, by tokens, for each number of sequences that they are padded to
  kPieces,  // pieces of steps with prompts, by tokens
};
inline bool counts_tokens(LadderOf of) {
  return of != LadderOf::kSequences;
}

// A ladder, and how its recordings are made.
struct Strategy {
  std::string name;
  LadderOf of = LadderOf::kSequences;
  runtime::Ladder ladder;
  bool records = true;
  runtime::RecordOrder order = runtime::RecordOrder::kDescending;
};

// The results. They come from another process, so they are trivially copyable.
struct Measured {
  int recordings = 0;  // of all kinds
  int executables = 0;
  int64_t nodes = 0;
  int64_t predicted_bytes = 0;
  double record_ms = 0;
  double predicted_ms = 0;
  double waste = 0;         // padding over rows launched, every size from 1 to the largest once
  double first_use_ms = 0;  // of a size that was not recorded at start-up
  double mean_step_ms = 0;  // over the sample sizes
  loader::MemoryPlan plan;
  int64_t kv_bytes_per_token = 0;
  int64_t used_bytes = 0;        // by the driver's count, at start; 0: it has none
  int64_t used_bytes_after = 0;  // after the replays

  // The reference documents' formula: for each kernel, twice 64 bytes and 8 arguments of 8 bytes.
  [[nodiscard]] int64_t formula_bytes() const { return nodes * 2 * (64 + 8 * 8); }
  // The number of tokens whose K and V would fit in the recordings' memory.
  [[nodiscard]] int64_t kv_tokens() const { return div_up(plan.recordings, kv_bytes_per_token); }
};

// Returns the sizes of steps to be measured, each about twice the one before. No ladder's sizes
// were chosen for them.
std::vector<int64_t> sample_sizes(LadderOf of, int64_t max);
// Each size from 1 to `max` once.
planning::Histogram every_size_once(int64_t max);

// Loads the model with the ladder and measures it, with `replays` steps of every size between the
// two readings of the driver's memory. This happens in a process of its own: a driver keeps memory
// that recordings once had, so the second of two measurements in one process would see none.
// REQUIRES: this process has not opened a device. Errors: those of loading.
Measured measure(const std::function<std::unique_ptr<Device>()>& open_device,
                 const model::ModelSource& source, const loader::LoadOptions& base,
                 const Strategy& strategy, int64_t replays);

}  // namespace encore::measure
