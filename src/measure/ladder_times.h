// The times of a ladder's buckets beside their floors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace encore::measure {

// Steps that a bucket's recording holds, run launch by launch and without padding.
struct EagerTimes {
  int64_t least = 0;    // the smallest such step: one more than the bucket before
  double least_us = 0;  // of that step
  double us = 0;        // of a step of the bucket's size
};

struct BucketTime {
  int64_t bucket = 0;
  double us = 0;  // of the device, a step
  double floor_us = 0;
  int64_t least_bytes = 0;          // that a step must read and write
  std::optional<EagerTimes> eager;  // where it was measured, too

  [[nodiscard]] double ratio() const { return floor_us > 0 ? us / floor_us : 0; }
  // How much longer than a replay the same steps take launch by launch, as a share, padding of the
  // replay included: the mean over the sizes from the least to the bucket, on a straight line between
  // them. REQUIRES: eager.
  [[nodiscard]] double benefit() const { return (eager->least_us + eager->us) / 2 / us - 1; }
};
// A replay pays where its benefit is larger than this.
inline constexpr double kLeastBenefit = 0.01;
// The largest bucket whose replay pays; nothing where none does, or eager steps were not measured.
std::optional<int64_t> pays_up_to(const std::vector<BucketTime>& times);

// The change from the first to the second, as a share: 0.02 is two percent more.
inline double change(double from, double to) {
  return from > 0 ? to / from - 1 : 0;
}

// The worst points of a ladder: the bucket farthest above its floor, and the neighbours between
// which that distance changes most.
struct LadderSummary {
  size_t worst = 0;           // position of the bucket
  size_t largest_change = 0;  // position of the second of two neighbours; 0: one bucket alone
  double change = 0;          // of time over floor, between them
};
LadderSummary summarize(const std::vector<BucketTime>& times);

// The times as a table with a bar for each bucket, as JSON, and the summary as a sentence.
std::string times_text(const std::vector<BucketTime>& times);
json::array times_json(const std::vector<BucketTime>& times);
std::string summary_text(const std::vector<BucketTime>& times);

}  // namespace encore::measure
