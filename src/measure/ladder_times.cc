#include "measure/ladder_times.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/table.h"

namespace encore::measure {
namespace {

constexpr size_t kPlotWidth = 40;

// Draws a bar as long as the time. The floor's part is drawn with '#', the rest with '+'.
std::string bar(const BucketTime& time, double longest_us) {
  const auto length = [&](double us) {
    return static_cast<size_t>(std::lround(us / longest_us * kPlotWidth));
  };
  const size_t floor = std::min(length(time.floor_us), length(time.us));
  return std::string(floor, '#') + std::string(length(time.us) - floor, '+');
}

}  // namespace

std::optional<int64_t> pays_up_to(const std::vector<BucketTime>& times) {
  std::optional<int64_t> last;
  for (const BucketTime& time : times) {
    if (time.eager && time.benefit() > kLeastBenefit) last = time.bucket;
  }
  return last;
}

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
  const bool has_eager = !times.empty() && times.front().eager;
  std::vector<std::string> header{"bucket", "us", "floor us", "over floor", "step", "ratio"};
  if (has_eager) header.insert(header.end(), {"least", "eager us", "least eager us", "benefit"});
  header.emplace_back("# floor, + above it");
  Table table(header);
  for (size_t i = 0; i < times.size(); ++i) {
    const BucketTime& now = times[i];
    const auto against = [&](double before, double after) {
      return i == 0 ? std::string("-") : fmt::format("{:+.1f} %", change(before, after) * 100);
    };
    const BucketTime& before = times[i == 0 ? 0 : i - 1];
    std::vector<std::string> row{
        std::to_string(now.bucket),          fmt::format("{:.1f}", now.us),
        fmt::format("{:.1f}", now.floor_us), fmt::format("{:.3f}", now.ratio()),
        against(before.us, now.us),          against(before.ratio(), now.ratio())};
    if (has_eager) {
      row.insert(row.end(), {std::to_string(now.eager->least), fmt::format("{:.1f}", now.eager->us),
                             fmt::format("{:.1f}", now.eager->least_us),
                             fmt::format("{:+.1f} %", now.benefit() * 100)});
    }
    row.push_back(bar(now, longest));
    table.add(std::move(row));
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
    json::object row{{"bucket", times[i].bucket},
                     {"us", times[i].us},
                     {"floor_us", times[i].floor_us},
                     {"least_bytes", times[i].least_bytes},
                     {"over_floor", times[i].ratio()},
                     {"change_of_time", against(before.us, times[i].us)},
                     {"change_of_ratio", against(before.ratio(), times[i].ratio())}};
    if (const auto& eager = times[i].eager) {
      row["eager_us"] = eager->us;
      row["least"] = eager->least;
      row["least_eager_us"] = eager->least_us;
      row["benefit"] = times[i].benefit();
    }
    rows.push_back(std::move(row));
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
  if (times.front().eager) {
    const auto last = pays_up_to(times);
    text += last ? fmt::format("; a replay pays up to {}", *last) : "; a replay pays nowhere";
    text += fmt::format(" (more than {:.0f} %, padding included)", kLeastBenefit * 100);
  }
  return text;
}

}  // namespace encore::measure
