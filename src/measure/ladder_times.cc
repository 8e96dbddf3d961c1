#include "measure/ladder_times.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/table.h"

namespace encore::measure {
namespace {

constexpr size_t kPlotWidth = 40;

// Draws a bar as long as the time, the floor's part of it darker.
std::string bar(const BucketTime& time, double longest_us) {
  const auto length = [&](double us) {
    return static_cast<size_t>(std::lround(us / longest_us * kPlotWidth));
  };
  const size_t floor = std::min(length(time.floor_us), length(time.us));
  return std::string(floor, '#') + std::string(length(time.us) - floor, '+');
}

}  // namespace

LadderSummary summarize(const std::vector<BucketTime>& times) {
  LadderSummary summary;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].ratio() > times[summary.worst].ratio()) summary.worst = i;
    if (i == 0) continue;
    const double changed = change(times[i - 1].ratio(), times[i].ratio());
    if (summary.largest_change != 0 && std::abs(changed) <= std::abs(summary.change)) continue;
    summary.largest_change = i;
    summary.change = changed;
  }
  return summary;
}

std::string times_text(const std::vector<BucketTime>& times) {
  double longest = 0;
  for (const BucketTime& time : times)
    longest = std::max(longest, time.us);
  Table table({"bucket", "us", "floor us", "over floor", "step", "ratio", "# floor, + above it"});
  for (size_t i = 0; i < times.size(); ++i) {
    const BucketTime& now = times[i];
    const auto against = [&](double before, double after) {
      return i == 0 ? std::string("-") : fmt::format("{:+.1f} %", change(before, after) * 100);
    };
    const BucketTime& before = times[i == 0 ? 0 : i - 1];
    table.add({std::to_string(now.bucket), fmt::format("{:.1f}", now.us),
               fmt::format("{:.1f}", now.floor_us), fmt::format("{:.3f}", now.ratio()),
               against(before.us, now.us), against(before.ratio(), now.ratio()),
               bar(now, longest)});
  }
  return table.text();
}

json::array times_json(const std::vector<BucketTime>& times) {
  json::array rows;
  for (size_t i = 0; i < times.size(); ++i) {
    const BucketTime& before = times[i == 0 ? 0 : i - 1];
    const auto against = [&](double from, double to) {
      return i == 0 ? json::value(nullptr) : json::value(change(from, to));
    };
    rows.push_back(json::object{{"bucket", times[i].bucket},
                                {"us", times[i].us},
                                {"floor_us", times[i].floor_us},
                                {"least_bytes", times[i].least_bytes},
                                {"over_floor", times[i].ratio()},
                                {"change_of_time", against(before.us, times[i].us)},
                                {"change_of_ratio", against(before.ratio(), times[i].ratio())}});
  }
  return rows;
}

std::string summary_text(const std::vector<BucketTime>& times) {
  const LadderSummary summary = summarize(times);
  std::string text = fmt::format("farthest above its floor: {} at {:.3f}",
                                 times[summary.worst].bucket, times[summary.worst].ratio());
  if (summary.largest_change > 0) {
    text += fmt::format("; time over floor changes most from {} to {}: {:+.1f} %",
                        times[summary.largest_change - 1].bucket,
                        times[summary.largest_change].bucket, summary.change * 100);
  }
  return text;
}

}  // namespace encore::measure
