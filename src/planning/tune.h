// Finds the best ladder for a workload: the sizes that pad the steps of a log least.
//
// A ladder of K sizes splits the steps, sorted by size, into K runs. Each step of a run is launched
// at the size of the run's largest step. Let t(s) be the cost of a step that is launched at size s:
// the size itself, or the time that such a step takes. The sum of the costs of all runs is minimal
// over all splits:
//
//   best[k][j] = min over i < j of best[k - 1][i] + t(size[j]) x (steps of sizes i + 1 to j)
//
// t never falls as s grows, so the cost of a run satisfies the quadrangle inequality, by which the
// beginning of the best last run never moves left as j grows. This lets divide and conquer compute
// best[k] for one k and all n values of j in n log n instead of n^2 evaluations.
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

// Counts the steps of one size, before padding.
struct SizeCount {
  int64_t size = 0;
  int64_t steps = 0;

  friend bool operator==(const SizeCount&, const SizeCount&) = default;
};
// Holds the number of steps of each size. Sizes ascend, are positive, and occur once each.
using Histogram = std::vector<SizeCount>;

// Holds the sizes of the steps that each of the two ladders must hold. Steps that ran nothing are
// only counted, in num_idle.
struct StepSizes {
  Histogram decode;  // steps by number of sequences
  Histogram tokens;
  int64_t num_idle = 0;

  [[nodiscard]] int64_t num_steps() const;
};
StepSizes step_sizes(std::span<const LoggedStep> steps);

// Describes the effect of a ladder on the steps of a histogram. Steps above the ladder run eager
// and unpadded.
struct LadderPrice {
  int64_t steps = 0;
  int64_t hits = 0;     // steps of at most the ladder's largest size
  int64_t rows = 0;     // sequences or tokens of the hits, before padding
  int64_t padding = 0;  // rows of padding that the hits launch

  [[nodiscard]] double hit_rate() const;  // hits over steps; 1 if there are no steps
  [[nodiscard]] double waste() const;     // rows of padding over all rows that the hits launch
};
LadderPrice price(const Histogram& histogram, const runtime::Ladder& ladder);

// Estimates the time of a step from the size that it is launched at. For each size of the log, it
// takes the median time of the steps launched at that size, and makes the medians ascend by pooling
// adjacent violators, weighted by the number of steps. Between sizes it interpolates linearly;
// below the smallest it is flat, and above the largest it has the mean slope. Eager steps do not
// count, because a bucket replaces them. Other differences between steps, such as the lengths of
// sequences, are only in the medians.
class StepTimes {
 public:
  // Fits the times of the decode steps, or of all other steps if `decode` is false. Returns nullopt
  // when fewer than two sizes have times.
  static std::optional<StepTimes> fit(std::span<const LoggedStep> steps, bool decode);
  // Returns the time of a step launched at `size`. Units: microseconds.
  [[nodiscard]] double operator()(int64_t size) const;

 private:
  std::vector<std::pair<int64_t, double>> points_;  // size, microseconds; both ascend
};

// Returns the total time of the ladder's hits. Units: microseconds.
double total_us(const Histogram& histogram, const runtime::Ladder& ladder, const StepTimes& times);

// Finds the best ladder for each number of sizes from 1 to a maximum.
class OptimalLadders {
 public:
  using Cost = std::function<double(int64_t size)>;

  // Steps above `max` do not count, and `max` is in every ladder. `cost` must never fall with
  // growing size.
  OptimalLadders(const Histogram& histogram, int64_t max, int64_t max_sizes, const Cost& cost);

  // Returns the best ladder of at most `num_sizes` sizes.
  // REQUIRES: 0 < num_sizes <= the constructor's `max_sizes`.
  [[nodiscard]] runtime::Ladder ladder(int64_t num_sizes) const;

 private:
  std::vector<int64_t> sizes_;  // candidates: the sizes of steps, and the maximum
  // covered_before_[k][j] belongs to the best ladder of k + 1 sizes for the first j candidates. It
  // is the number of candidates that all its sizes but the last cover.
  std::vector<std::vector<int32_t>> covered_before_;
};

// Finds the best ladders of at most `max_sizes` sizes. `max` is in each of them; if `with_one` is
// set and there is room, 1 is too. `cost` must never fall with growing size.
class TunedLadders {
 public:
  TunedLadders(Histogram histogram, int64_t max, int64_t max_sizes,
               const OptimalLadders::Cost& cost, bool with_one);

  // REQUIRES: 0 < num_sizes <= max_sizes.
  [[nodiscard]] runtime::Ladder ladder(int64_t num_sizes) const;

 private:
  // If true, 1 is a size of every ladder with room for it. The other sizes are then the best ones
  // for the steps of more than 1.
  bool with_one_;
  OptimalLadders optimal_;
  OptimalLadders others_;
};
// Returns the ladder of at most `num_sizes` sizes, including `max`, that launches the fewest rows
// of padding for the histogram.
runtime::Ladder optimal_ladder(const Histogram& histogram, int64_t max, int64_t num_sizes);

}  // namespace encore::planning
