// Compares the time of each bucket of a ladder with its floor, the least time that the step can
// take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace encore::measure {

// Holds the times of steps that a bucket's recording serves, when they run launch by launch and
// without padding.
struct EagerTimes {
  int64_t least = 0;    // size of the smallest such step: one more than the bucket before
  double least_us = 0;  // the time of that smallest step
  double us = 0;        // the time of a step of the bucket's full size
};

struct BucketTime {
  int64_t bucket = 0;
  double us = 0;  // the device's time for one step
  double floor_us = 0;
  int64_t least_bytes = 0;          // the bytes that a step must at least read and write
  std::optional<EagerTimes> eager;  // absent where eager steps were not measured

  [[nodiscard]] double ratio() const { return floor_us > 0 ? us / floor_us : 0; }
  // Returns how much longer eager steps take than a replay of this bucket, as a share: 0.1 is 10 %
  // longer. The eager time is the mean over the step sizes that the bucket serves, on a straight
  // line between the smallest and the largest. The replay's time includes padding. REQUIRES: eager.
  [[nodiscard]] double benefit() const { return (eager->least_us + eager->us) / 2 / us - 1; }
};
// Sets the threshold of the gain: a replay pays if BucketTime::benefit() is above this share, 1 %.
inline constexpr double kLeastBenefit = 0.01;
// Returns the largest bucket whose replay pays. Returns nothing where no replay pays, or where
// eager steps were not measured.
std::optional<int64_t> pays_up_to(const std::vector<BucketTime>& times);

// Returns the change from `from` to `to` as a share: 0.02 is two percent more.
inline double change(double from, double to) {
  return from > 0 ? to / from - 1 : 0;
}

// Names the worst points of a ladder: the bucket whose time is farthest above its floor, and the
// two neighbours between which the ratio of time to floor changes most.
struct LadderSummary {
  size_t worst = 0;           // position of the bucket
  size_t largest_change = 0;  // position of the second of two neighbours; 0: one bucket alone
  double change = 0;          // change of the ratio of time to floor between these neighbours
};
LadderSummary summarize(const std::vector<BucketTime>& times);

// Return the times as a table with a bar for each bucket, the times as JSON, and the summary as a
// sentence.
std::string times_text(const std::vector<BucketTime>& times);
json::array times_json(const std::vector<BucketTime>& times);
std::string summary_text(const std::vector<BucketTime>& times);

}  // namespace encore::measure
