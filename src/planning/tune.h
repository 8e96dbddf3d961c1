// The best ladder for a workload: sizes chosen so that a log's steps are padded least.
//
// A ladder of K sizes splits the steps, sorted by size, into K runs, each launched at its largest
// step. With t(s) the cost of a step launched at size s (the size itself, or the time it takes),
// what the runs cost together is minimal over all splits:
//
//   best[k][j] = min over i < j of best[k - 1][i] + t(size[j]) x (steps of sizes i + 1 to j)
//
// t never falls, so where the last run begins never moves left as j grows, and a layer takes
// n log n instead of n^2 (divide and conquer).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planning/step_log.h"
#include "runtime/ladder.h"

namespace encore::planning {

// Steps of one size, before padding.
struct SizeCount {
  int64_t size = 0;
  int64_t steps = 0;

  friend bool operator==(const SizeCount&, const SizeCount&) = default;
};
// Ascending, every size once and positive.
using Histogram = std::vector<SizeCount>;

// The sizes of the steps that each of the two ladders must hold. Steps in which nothing ran are
// left out.
struct StepSizes {
  Histogram decode;  // sequences
  Histogram tokens;
  int64_t num_idle = 0;

  [[nodiscard]] int64_t num_steps() const;
};
StepSizes step_sizes(std::span<const LoggedStep> steps);

// The effect of a ladder on such steps. Steps above it run eager and unpadded.
struct LadderPrice {
  int64_t steps = 0;
  int64_t hits = 0;     // steps at or under the largest size
  int64_t rows = 0;     // of the hits, before padding: sequences or tokens
  int64_t padding = 0;  // rows launched for nothing

  [[nodiscard]] double hit_rate() const;  // 1 without steps
  [[nodiscard]] double waste() const;     // padding over all rows launched by the hits
};
LadderPrice price(const Histogram& histogram, const runtime::Ladder& ladder);

// The time of a step, by the size it is launched at, as a log has it: the median of the steps
// launched at each size, made to rise (pool adjacent violators, weighted by steps), straight lines
// between, flat below the smallest, and with the mean slope above the largest. Eager steps do not
// count, as a bucket replaces them. Differences beside the size (lengths of the sequences) are in
// the median.
class StepTimes {
 public:
  // Fits the decode steps, or the others. Nothing when fewer than two sizes have times.
  static std::optional<StepTimes> fit(std::span<const LoggedStep> steps, bool decode);
  // Units: microseconds.
  [[nodiscard]] double operator()(int64_t size) const;

 private:
  std::vector<std::pair<int64_t, double>> points_;  // size, microseconds; both ascend
};

// The microseconds that the hits would take in all.
double total_us(const Histogram& histogram, const runtime::Ladder& ladder, const StepTimes& times);

// The best ladder of each number of sizes up to a largest one.
class OptimalLadders {
 public:
  using Cost = std::function<double(int64_t size)>;

  // Steps above `max` do not count; `max` is in every ladder. `cost` never falls.
  OptimalLadders(const Histogram& histogram, int64_t max, int64_t max_sizes, const Cost& cost);

  // The best ladder of at most `num_sizes` sizes, which is at most the `max_sizes` of the
  // constructor. REQUIRES: num_sizes > 0.
  [[nodiscard]] runtime::Ladder ladder(int64_t num_sizes) const;

 private:
  std::vector<int64_t> sizes_;  // candidates: those that steps have, and the maximum
  // For each number of sizes less one, then each number of candidates covered: how many of these
  // the sizes but the last cover.
  std::vector<std::vector<int32_t>> covered_before_;
};

// The best ladders of at most `max_sizes` sizes, `max` one of them; where `with_one` and there is room
// for it, 1 is another. `cost` as above.
class TunedLadders {
 public:
  TunedLadders(Histogram histogram, int64_t max, int64_t max_sizes,
               const OptimalLadders::Cost& cost, bool with_one);

  // REQUIRES: 0 < num_sizes <= max_sizes.
  [[nodiscard]] runtime::Ladder ladder(int64_t num_sizes) const;

 private:
  // Is 1 a size whatever it saves? The others are then the best ones for the other steps.
  bool with_one_;
  OptimalLadders optimal_;
  OptimalLadders others_;
};
// The best ladder of at most `num_sizes` sizes, `max` one of them, by padding.
runtime::Ladder optimal_ladder(const Histogram& histogram, int64_t max, int64_t num_sizes);

}  // namespace encore::planning
