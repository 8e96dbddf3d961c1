// Counts steps by the way they were run, and measures what they cost the host.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/dispatch.h"

namespace encore::engine {

// Counts of rows of collected steps that had drafts.
struct DraftCounts {
  int64_t rows = 0;                 // rows that take drafts
  int64_t rows_without = 0;         // rows that take none (SamplingRow::takes_drafts)
  int64_t tokens = 0;               // drafts of the rows that take drafts
  int64_t mixed_rows = 0;           // rows of mixed steps whose sequences generate
  int64_t mixed_drafting_rows = 0;  // the ones of `mixed_rows` that had drafts
  // accepted[i] counts the rows whose draft i was right.
  std::vector<int64_t> accepted = {};

  void add(int64_t num_tokens, int64_t num_accepted) {
    ++rows;
    tokens += num_tokens;
    accepted.resize(std::max(accepted.size(), static_cast<size_t>(num_tokens)));
    for (int64_t i = 0; i < num_accepted; ++i)
      ++accepted[static_cast<size_t>(i)];
  }
  [[nodiscard]] int64_t num_accepted() const {
    return std::accumulate(accepted.begin(), accepted.end(), int64_t{0});
  }
  [[nodiscard]] double share_right() const {
    return static_cast<double>(num_accepted()) / static_cast<double>(std::max<int64_t>(1, tokens));
  }
};

// Counts the steps of one mode, key and reason.
struct StepCount {
  runtime::Mode mode = runtime::Mode::kEager;
  // The key as launched. Sizes are rounded up to powers of two where there are too many of them.
  StepKey key;
  runtime::Reason reason = runtime::Reason::kNone;
  int64_t steps = 0;
  int64_t tokens = 0;   // tokens without padding
  int64_t padding = 0;  // tokens of padding
};

class StepCounts {
 public:
  // The number of sizes that are counted separately. Further sizes, which only steps above the
  // ladders have, are rounded to powers of two and counted together.
  static constexpr size_t kMaxSizes = 1024;

  void add(const runtime::Choice& choice) {
    const auto& [mode, launched, padding, reason, rule] = choice;
    const bool is_exact = counts_.size() < kMaxSizes || counts_.contains({mode, launched, reason});
    const StepKey key = is_exact ? launched : coarse(launched);
    StepCount& count =
        counts_.try_emplace({mode, key, reason}, StepCount{mode, key, reason}).first->second;
    ++count.steps;
    count.tokens += launched.tokens - padding;
    count.padding += padding;
  }
  [[nodiscard]] std::vector<StepCount> all() const {
    std::vector<StepCount> counts;
    for (const auto& [key, count] : counts_)
      counts.push_back(count);
    return counts;
  }

 private:
  // Rounds the sizes up to powers of two.
  static StepKey coarse(const StepKey& key) {
    const auto up = [](int64_t size) {
      return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
    };
    if (key.is_uniform()) return StepKey::uniform(up(key.sequences), *key.q);
    return StepKey::mixed(up(key.tokens), up(key.sequences), key.drafts);
  }

  std::map<std::tuple<runtime::Mode, StepKey, runtime::Reason>, StepCount> counts_;
};

// The kinds of work that the host does for steps. None of them waits.
enum class HostWork : uint8_t {
  kPlan,     // chooses the rows of the step
  kPack,     // grants bursts their pages, and writes inputs
  kLaunch,   // launches the step; ends when the device has all of it
  kMask,     // asks grammars which tokens may come
  kCollect,  // reads tokens, and ends sequences
  kDeliver,  // hands tokens to their requests
};
// Names of the kinds of work, in the order of HostWork.
inline constexpr std::array<std::string_view, 6> kHostWorkNames = {"plan", "pack",    "launch",
                                                                   "mask", "collect", "deliver"};

// Holds the host's time by kind of work, and how long the device waited for the host.
struct HostTimes {
  using Clock = std::chrono::steady_clock;

  // Adds the time from `start` until now, and returns now.
  Clock::time_point add(HostWork work, Clock::time_point start) {
    const auto now = Clock::now();
    by_work.at(static_cast<size_t>(work)) += now - start;
    return now;
  }

  std::array<Clock::duration, kHostWorkNames.size()> by_work = {};
  // The time during which the device had no step although there was work. It runs from the end of
  // the wait for a step to the next launch.
  Clock::duration gap = {};
  // The number of steps that should have been launched before the end of the step in front, but
  // were launched after it.
  int64_t num_late_steps = 0;
  // The most processor time that the grammars of one step took. Other programs of the machine add
  // nothing to it.
  Clock::duration longest_grammars = {};
};

}  // namespace encore::engine
