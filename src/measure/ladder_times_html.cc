#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "measure/html.h"
#include "measure/ladder_times.h"

namespace encore::measure {
namespace {

constexpr const char* kLadderTimesStyle = R"(
.time { stroke: var(--bar); fill: none; stroke-width: 2; } .dot { fill: var(--bar); }
.floor { stroke: var(--mark); fill: none; stroke-width: 2; stroke-dasharray: 5 4; }
)";

// One curve or two over the buckets on a logarithmic axis, with one of `unit` at the left.
class TimesPlot {
 public:
  static constexpr double kLeft = 62;
  static constexpr double kRight = kHtmlWidth - 12;
  static constexpr double kTop = 26;
  static constexpr double kBottom = 284;
  static constexpr double kHeight = 330;
  using Value = std::function<double(const BucketTime&)>;

  // `counted`: what the sizes count.
  TimesPlot(const std::vector<BucketTime>& times, const std::string& counted, const char* unit,
            double low, double high)
      : times_(times), counted_(counted), low_(low), high_(high) {
    svg_ = fmt::format(
        R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{} by {}"><text x="0" y="12">{}</text>)",
        kHtmlWidth, kHeight, unit, counted, unit);
    const double step = nice_step(high - low, 5);
    const int decimals = step < 0.1 ? 2 : step < 1 ? 1 : 0;
    for (double at = std::ceil(low / step) * step; at <= high + step * 1e-6; at += step) {
      svg_ += fmt::format(
          R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/><text x="{3}" y="{4:.1f}" text-anchor="end">{5:.{6}f}</text>)",
          kLeft, kRight, y(at), kLeft - 7, y(at) + 4, at, decimals);
    }
    svg_ += fmt::format(R"(<line class="axis" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>)", kLeft,
                        kRight, kBottom);
    for (const BucketTime& time : times) {
      svg_ += fmt::format(R"(<line class="axis" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)",
                          x(time.bucket), kBottom, kBottom + 4);
    }
    for (int64_t power = 1; power <= times.back().bucket; power *= 2) {
      if (power < times.front().bucket) continue;
      svg_ += fmt::format(
          R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/><text x="{0:.1f}" y="{3}" text-anchor="middle">{4}</text>)",
          x(power), kTop, kBottom, kBottom + 20, power);
    }
    svg_ +=
        fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{} in the step, logarithmic</text>)",
                    kRight, kHeight - 6, counted);
  }

  void curve(const char* style, const Value& value) {
    std::string points;
    for (const BucketTime& time : times_)
      points += fmt::format("{:.1f},{:.1f} ", x(time.bucket), y(value(time)));
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
          R"(<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="4"><title>{} {}: {:.1f} us, floor {:.1f} us, {:.3f} of it</title></circle>)",
          x(time.bucket), y(value(time)), time.bucket, counted_, time.us, time.floor_us,
          time.ratio());
    }
  }
  [[nodiscard]] std::string svg() const { return svg_ + "</svg>"; }

 private:
  [[nodiscard]] double x(int64_t bucket) const {
    const auto of = [](int64_t size) { return std::log2(static_cast<double>(size)); };
    const double first = of(times_.front().bucket);
    const double last = of(times_.back().bucket);
    const double share = last > first ? (of(bucket) - first) / (last - first) : 0.5;
    return kLeft + 8 + (kRight - kLeft - 16) * share;
  }
  [[nodiscard]] double y(double value) const {
    return kBottom - (kBottom - kTop) * (value - low_) / (high_ - low_);
  }

  const std::vector<BucketTime>& times_;
  std::string counted_;
  double low_;
  double high_;
  std::string svg_;
};

std::string rows(const std::vector<BucketTime>& times, const std::string& counted) {
  std::string html = fmt::format(
      "<details><summary>Figures</summary><div class=\"scroll\"><table><tr><th>{}</th>"
      "<th>us</th><th>floor us</th><th>over floor</th><th>change of it</th><th>tokens/s</th></tr>",
      counted);
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

std::string ladder_html(const std::vector<BucketTime>& times, const LadderText& text) {
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

  TimesPlot time_plot(times, text.unit, "us a step", 0, longest * 1.05);
  time_plot.curve("floor", [](const BucketTime& time) { return time.floor_us; });
  time_plot.curve("time", [](const BucketTime& time) { return time.us; });
  time_plot.dots([](const BucketTime& time) { return time.us; });
  body += fmt::format(
      "<section><h2>Time of a step</h2><p><span class=\"key\" "
      "style=\"background:var(--bar)\"></span>as measured<span class=\"key\" "
      "style=\"background:var(--mark)\"></span>floor: the sum over the ops of {}</p>{}</section>",
      html_escaped(text.floor), time_plot.svg());

  const double margin = (highest_ratio - lowest_ratio) * 0.08 + 0.01;
  TimesPlot ratio_plot(times, text.unit, "time over floor", lowest_ratio - margin,
                       highest_ratio + margin);
  ratio_plot.level(1);
  ratio_plot.curve("time", [](const BucketTime& time) { return time.ratio(); });
  ratio_plot.dots([](const BucketTime& time) { return time.ratio(); });
  body += fmt::format("<section><h2>Time over floor</h2><p>1 is the floor.</p>{}{}</section>",
                      ratio_plot.svg(), rows(times, text.unit));
  return html_page("encore bench ladder", fmt::format("The {} and its floor", text.ladder),
                   text.what, body, kLadderTimesStyle);
}

}  // namespace encore::measure
