// The times of a ladder's buckets beside their floors, and the page that plots them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace encore::measure {

struct BucketTime {
  int64_t bucket = 0;
  double us = 0;  // of the device, a step
  double floor_us = 0;
  int64_t least_bytes = 0;  // that a step must read and write

  [[nodiscard]] double ratio() const { return floor_us > 0 ? us / floor_us : 0; }
};

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

// The texts on the page about a ladder.
struct LadderText {
  std::string ladder;  // "decode ladder"
  std::string unit;    // what its sizes count: "sequences"
  std::string what;    // the line below the heading
  std::string floor;   // what the floor is made of
};

// The page of `encore bench ladder --html`.
std::string ladder_html(const std::vector<BucketTime>& times, const LadderText& text);

}  // namespace encore::measure
