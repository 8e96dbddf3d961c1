#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "cli/bench_ladder.h"
#include "cli/html.h"

namespace encore::cli {
namespace {

constexpr const char* kStyle = R"(
.time { stroke: var(--bar); fill: none; stroke-width: 2; } .dot { fill: var(--bar); }
.floor { stroke: var(--mark); fill: none; stroke-width: 2; stroke-dasharray: 5 4; }
)";

// One curve or two over the buckets, with an axis of numbers at the left.
class Plot {
 public:
  static constexpr double kLeft = 62;
  static constexpr double kRight = kHtmlWidth - 12;
  static constexpr double kTop = 12;
  static constexpr double kBottom = 270;
  static constexpr double kHeight = 316;
  using Value = std::function<double(const BucketTime&)>;

  Plot(const std::vector<BucketTime>& times, double low, double high, int decimals)
      : times_(times), low_(low), high_(high) {
    svg_ = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img">)", kHtmlWidth, kHeight);
    const double step = nice_step(high - low, 5);
    for (double at = std::ceil(low / step) * step; at <= high + step * 1e-6; at += step) {
      svg_ += fmt::format(
          R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/><text x="{3}" y="{4:.1f}" text-anchor="end">{5:.{6}f}</text>)",
          kLeft, kRight, y(at), kLeft - 7, y(at) + 4, at, decimals);
    }
    svg_ += fmt::format(R"(<line class="axis" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>)", kLeft,
                        kRight, kBottom);
    double last_label = -100;
    for (const BucketTime& time : times) {
      const double at = x(time);
      svg_ += fmt::format(R"(<line class="axis" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)", at,
                          kBottom, kBottom + 4);
      if (at - last_label < 26) continue;
      svg_ += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>)", at,
                          kBottom + 20, time.bucket);
      last_label = at;
    }
    svg_ += fmt::format(R"(<text x="{}" y="{}" text-anchor="end">sequences</text>)", kRight,
                        kHeight - 4);
  }

  void curve(const char* style, const Value& value) {
    std::string points;
    for (const BucketTime& time : times_)
      points += fmt::format("{:.1f},{:.1f} ", x(time), y(value(time)));
    svg_ += fmt::format(R"(<polyline class="{}" points="{}"/>)", style, points);
  }
  void level(double value) {
    if (value < low_ || value > high_) return;
    svg_ += fmt::format(R"(<line class="floor" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>)",
                        kLeft, kRight, y(value));
  }
  void dots(const Value& value) {
    for (const BucketTime& time : times_) {
      svg_ += fmt::format(
          R"(<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="4"><title>{} sequences: {:.1f} us, floor {:.1f} us, {:.3f} of it</title></circle>)",
          x(time), y(value(time)), time.bucket, time.us, time.floor_us, time.ratio());
    }
  }
  [[nodiscard]] std::string svg() const { return svg_ + "</svg>"; }

 private:
  // Small buckets lie close together: the root of the number of sequences spreads them.
  [[nodiscard]] double x(const BucketTime& time) const {
    const double first = std::sqrt(static_cast<double>(times_.front().bucket));
    const double last = std::sqrt(static_cast<double>(times_.back().bucket));
    const double at = std::sqrt(static_cast<double>(time.bucket));
    const double share = last > first ? (at - first) / (last - first) : 0.5;
    return kLeft + 8 + (kRight - kLeft - 16) * share;
  }
  [[nodiscard]] double y(double value) const {
    return kBottom - (kBottom - kTop) * (value - low_) / (high_ - low_);
  }

  const std::vector<BucketTime>& times_;
  double low_;
  double high_;
  std::string svg_;
};

std::string rows(const std::vector<BucketTime>& times) {
  std::string html =
      "<details><summary>Figures</summary><div class=\"scroll\"><table><tr><th>sequences</th>"
      "<th>us</th><th>floor us</th><th>over floor</th><th>change of it</th><th>tokens/s</th></tr>";
  for (size_t i = 0; i < times.size(); ++i) {
    const BucketTime& time = times[i];
    const std::string changed =
        i == 0 ? "" : fmt::format("{:+.1f} %", change(times[i - 1].ratio(), time.ratio()) * 100);
    html += fmt::format(
        "<tr><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.3f}</td><td>{}</td><td>{}</td></tr>",
        time.bucket, time.us, time.floor_us, time.ratio(), changed,
        html_grouped(std::llround(static_cast<double>(time.bucket) / time.us * 1e6)));
  }
  return html + "</table></div></details>";
}

}  // namespace

std::string ladder_html(const std::vector<BucketTime>& times, const std::string& what,
                        const std::string& floor) {
  const LadderSummary summary = summarize(times);
  double longest = 0;
  double lowest_ratio = 1;
  double highest_ratio = 1;
  for (const BucketTime& time : times) {
    longest = std::max(longest, time.us);
    lowest_ratio = std::min(lowest_ratio, time.ratio());
    highest_ratio = std::max(highest_ratio, time.ratio());
  }
  std::string body = "<div class=\"tiles\">";
  body += html_tile(std::to_string(times.size()), "buckets");
  body +=
      html_tile(fmt::format("{:.3f}", times[summary.worst].ratio()),
                fmt::format("of its floor takes {}, the farthest", times[summary.worst].bucket));
  if (summary.largest_change > 0) {
    body += html_tile(fmt::format("{:+.1f} %", summary.change * 100),
                      fmt::format("the largest change of that between neighbours, {} to {}",
                                  times[summary.largest_change - 1].bucket,
                                  times[summary.largest_change].bucket));
  }
  body += "</div>";

  Plot time_plot(times, 0, longest * 1.05, 0);
  time_plot.curve("floor", [](const BucketTime& time) { return time.floor_us; });
  time_plot.curve("time", [](const BucketTime& time) { return time.us; });
  time_plot.dots([](const BucketTime& time) { return time.us; });
  body += fmt::format(
      "<section><h2>Time of a step, us</h2><p><span class=\"key\" "
      "style=\"background:var(--bar)\"></span>as measured<span class=\"key\" "
      "style=\"background:var(--mark)\"></span>floor: the sum over the ops of {}</p>{}</section>",
      html_escaped(floor), time_plot.svg());

  const double margin = (highest_ratio - lowest_ratio) * 0.08 + 0.01;
  Plot ratio_plot(times, lowest_ratio - margin, highest_ratio + margin, 2);
  ratio_plot.level(1);
  ratio_plot.curve("time", [](const BucketTime& time) { return time.ratio(); });
  ratio_plot.dots([](const BucketTime& time) { return time.ratio(); });
  body += fmt::format("<section><h2>Time over floor</h2><p>1 is the floor.</p>{}{}</section>",
                      ratio_plot.svg(), rows(times));
  return html_page("encore bench ladder", "The decode ladder and its floor", what, body, kStyle);
}

}  // namespace encore::cli
