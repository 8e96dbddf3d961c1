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

// Names the kind of steps that a ladder's recordings hold.
enum class LadderOf : uint8_t {
  kSequences,  // decode steps, sized by sequences
  kTokens,     // whole steps with prompts, sized by tokens, for each padded number of sequences
  kPieces,     // pieces of steps with prompts, sized by tokens
};
inline bool counts_tokens(LadderOf of) {
  return of != LadderOf::kSequences;
}

// Describes a ladder to measure, and how its recordings are made.
struct Strategy {
  std::string name;
  LadderOf of = LadderOf::kSequences;
  runtime::Ladder ladder;
  bool records = true;
  runtime::RecordOrder order = runtime::RecordOrder::kDescending;
};

// Holds the results of measuring one ladder. Another process fills it in shared memory, so it is
// trivially copyable.
struct Measured {
  int recordings = 0;  // recordings of all kinds
  int executables = 0;
  int64_t nodes = 0;
  int64_t predicted_bytes = 0;
  double record_ms = 0;
  double predicted_ms = 0;
  // The share of padding in the launched rows, over one step of every size from 1 to the largest.
  double waste = 0;
  double first_use_ms = 0;  // time of the first step of a size that was not recorded at start
  double mean_step_ms = 0;  // mean step time over sample_sizes()
  loader::MemoryPlan plan;
  int64_t kv_bytes_per_token = 0;
  // The device memory in use by the driver's count after the start; 0: the driver does not count.
  int64_t used_bytes = 0;
  int64_t used_bytes_after = 0;  // device memory by the driver's count after the replays

  // Returns the memory of the recordings by the reference documents' formula: each kernel takes
  // twice the sum of 64 bytes and 8 arguments of 8 bytes.
  [[nodiscard]] int64_t formula_bytes() const { return nodes * 2 * (64 + 8 * 8); }
  // Returns how many tokens' K and V would fit in the memory that recordings take.
  [[nodiscard]] int64_t kv_tokens() const { return div_up(plan.recordings, kv_bytes_per_token); }
};

// Returns the sizes of steps to be measured, each about twice the one before. They are chosen
// independently of every ladder.
std::vector<int64_t> sample_sizes(LadderOf of, int64_t max);
// Returns a histogram that has each size from 1 to `max` once.
planning::Histogram every_size_once(int64_t max);

// Loads the model with the ladder and measures it. Runs `replays` steps of every size between the
// two readings of the driver's memory. All of this runs in a forked process: a driver keeps memory
// that recordings once had, so a second measurement in the same process would not see that memory
// as newly taken.
// REQUIRES: this process has not opened a device. Errors: those of loading.
Measured measure(const std::function<std::unique_ptr<Device>()>& open_device,
                 const model::ModelSource& source, const loader::LoadOptions& base,
                 const Strategy& strategy, int64_t replays);

}  // namespace encore::measure
