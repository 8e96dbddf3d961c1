// Counts steps by the way they were run, and their cost to the host.
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

// Rows of steps with drafts, as far as these were collected.
struct DraftCounts {
  int64_t rows = 0;                 // that take drafts
  int64_t rows_without = 0;         // that do not (SamplingRow::takes_drafts)
  int64_t tokens = 0;               // drafted, for those that do
  int64_t mixed_rows = 0;           // of mixed steps, whose sequences generate
  int64_t mixed_drafting_rows = 0;  // of those, that had drafts
  // accepted[i] counts the rows whose draft number i was right.
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

// Steps that were run alike.
struct StepCount {
  runtime::Mode mode = runtime::Mode::kEager;
  StepKey key;  // as launched; rounded up to powers of two where there are too many sizes
  runtime::Reason reason = runtime::Reason::kNone;
  int64_t steps = 0;
  int64_t tokens = 0;   // without padding
  int64_t padding = 0;  // tokens
};

class StepCounts {
 public:
  // Sizes that are counted one by one: steps above the ladders come in any. Others of about the same
  // size are counted together.
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

// The kinds of work that the host does for steps, without waiting.
enum class HostWork : uint8_t {
  kPlan,     // chooses what runs
  kPack,     // grants bursts their pages, and writes inputs
  kLaunch,   // until the device has all of it
  kMask,     // asks grammars which tokens may come
  kCollect,  // reads tokens, and ends sequences
  kDeliver,  // hands tokens to those who asked for them
};
// Names of the kinds of work, in the order of HostWork.
inline constexpr std::array<std::string_view, 6> kHostWorkNames = {"plan", "pack",    "launch",
                                                                   "mask", "collect", "deliver"};

// The host's time by kind of work, and how much of it the device waited for.
struct HostTimes {
  using Clock = std::chrono::steady_clock;

  // Adds the time from `start` until now, and returns now.
  Clock::time_point add(HostWork work, Clock::time_point start) {
    const auto now = Clock::now();
    by_work.at(static_cast<size_t>(work)) += now - start;
    return now;
  }

  std::array<Clock::duration, kHostWorkNames.size()> by_work = {};
  // The time without a step on the device while there was work: from the end of a step's wait to
  // the next launch.
  Clock::duration gap = {};
  // The number of steps that were to be launched ahead of the end of the one before them, and came
  // behind it.
  int64_t num_late_steps = 0;
  // The most time of the processor that the grammars of one step took. Other programs of the machine
  // add nothing to it.
  Clock::duration longest_grammars = {};
};

}  // namespace encore::engine
