#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/statistics.h"
#include "base/table.h"
#include "measure/html.h"
#include "measure/replay_report.h"

namespace encore::measure {
namespace {

constexpr const char* kReplayStyle = R"(
.line { stroke: var(--bar); fill: none; stroke-width: 1.8; }
.line.second { stroke: var(--mark); } .line.third { stroke: var(--soft); }
.limit { stroke: var(--miss); stroke-dasharray: 5 4; }
)";

constexpr std::array kLines = {"line", "line second", "line third"};
constexpr std::array kColors = {"var(--bar)", "var(--mark)", "var(--soft)"};

struct Point {
  double x = 0;
  double y = 0;
};
using Curve = std::vector<Point>;

// Times are put into so many bins at most.
constexpr int64_t kMaxBins = 240;

struct Axis {
  double first = 0;
  double last = 1;
  bool is_logarithmic = false;

  [[nodiscard]] double place(double value) const {
    if (!is_logarithmic) return last > first ? (value - first) / (last - first) : 0.5;
    return std::log(std::max(value, first) / first) / std::log(last / first);
  }
  // The positions of the grid's lines.
  [[nodiscard]] std::vector<double> ticks(int count) const {
    std::vector<double> at;
    if (is_logarithmic) {
      for (double power = std::pow(10, std::floor(std::log10(first))); power <= last; power *= 10) {
        for (const double factor : {1.0, 2.0, 5.0}) {
          if (power * factor >= first && power * factor <= last) at.push_back(power * factor);
        }
      }
      return at;
    }
    const double step = nice_step(last - first, count);
    for (double tick = std::ceil(first / step) * step; tick <= last + step * 1e-6; tick += step)
      at.push_back(tick);
    return at;
  }
};

// Curves over one axis, with what they count above them and the unit of x below.
class ReplayPlot {
 public:
  ReplayPlot(std::string_view above, std::string_view below, const Axis& x, const Axis& y)
      : x_(x), y_(y) {
    svg_ = fmt::format(
        R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}"><text x="0" y="12">{}</text>)",
        kHtmlWidth, kHeight, above, above);
    for (const double tick : y.ticks(4)) {
      svg_ += fmt::format(
          R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/><text x="{3}" y="{4:.1f}" text-anchor="end">{5:g}</text>)",
          kLeft, kRight, place_y(tick), kLeft - 7, place_y(tick) + 4, rounded(tick));
    }
    for (const double tick : x.ticks(10)) {
      svg_ += fmt::format(
          R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/><text x="{0:.1f}" y="{3}" text-anchor="middle">{4:g}</text>)",
          place_x(tick), kTop, kBottom, kBottom + 18, rounded(tick));
    }
    svg_ += fmt::format(
        R"(<line class="axis" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/><text x="{1}" y="{3}" text-anchor="end">{4}</text>)",
        kLeft, kRight, kBottom, kHeight - 4, below);
  }

  void curve(const char* style, const Curve& points) {
    svg_ += fmt::format(R"(<polyline class="{}" points=")", style);
    for (const Point& point : points)
      svg_ += fmt::format("{:.1f},{:.1f} ", place_x(point.x), place_y(point.y));
    svg_ += R"("/>)";
  }
  void limit(double x) {
    if (x < x_.first || x > x_.last) return;
    svg_ += fmt::format(R"(<line class="limit" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)",
                        place_x(x), kTop, kBottom);
  }
  [[nodiscard]] std::string svg() const { return svg_ + "</svg>"; }

 private:
  static constexpr double kLeft = 62;
  static constexpr double kRight = kHtmlWidth - 12;
  static constexpr double kTop = 24;
  static constexpr double kBottom = 204;
  static constexpr double kHeight = 246;

  static double rounded(double tick) { return std::abs(tick) < 1e-9 ? 0 : tick; }
  [[nodiscard]] double place_x(double x) const { return kLeft + (kRight - kLeft) * x_.place(x); }
  [[nodiscard]] double place_y(double y) const { return kBottom - (kBottom - kTop) * y_.place(y); }

  Axis x_;
  Axis y_;
  std::string svg_;
};

// Bins of equal width over the time of a replay.
class Bins {
 public:
  explicit Bins(double wall_s)
      : width_s_(std::max(wall_s, 1e-6) / kMaxBins), sums_(kMaxBins), counts_(kMaxBins) {}

  void add(double at_s, double value) {
    const auto bin = std::clamp<int64_t>(static_cast<int64_t>(at_s / width_s_), 0, kMaxBins - 1);
    sums_[bin] += value;
    ++counts_[bin];
  }
  [[nodiscard]] Curve per_second() const {
    Curve curve;
    for (int64_t i = 0; i < kMaxBins; ++i)
      curve.push_back({middle(i), sums_[i] / width_s_});
    return curve;
  }
  // The mean of each bin that has values.
  [[nodiscard]] Curve means() const {
    Curve curve;
    for (int64_t i = 0; i < kMaxBins; ++i) {
      if (counts_[i] > 0) curve.push_back({middle(i), sums_[i] / static_cast<double>(counts_[i])});
    }
    return curve;
  }

 private:
  [[nodiscard]] double middle(int64_t bin) const {
    return (static_cast<double>(bin) + 0.5) * width_s_;
  }

  double width_s_;
  std::vector<double> sums_;
  std::vector<int64_t> counts_;
};

double highest(const std::vector<Curve>& curves) {
  double most = 0;
  for (const Curve& curve : curves) {
    for (const Point& point : curve)
      most = std::max(most, point.y);
  }
  return most > 0 ? most * 1.05 : 1;
}

std::string key(const std::vector<const char*>& names) {
  std::string html = "<p>";
  for (size_t i = 0; i < names.size(); ++i) {
    html += fmt::format(R"(<span class="key" style="background:{}"></span>{})", kColors.at(i),
                        names[i]);
  }
  return html + "</p>";
}

std::string timeline(std::string_view above, double wall_s, const std::vector<Curve>& curves) {
  ReplayPlot plot(above, "seconds since the start", {0, std::max(wall_s, 1e-6)},
                  {0, highest(curves)});
  for (size_t i = 0; i < curves.size(); ++i)
    plot.curve(kLines.at(i), curves[i]);
  return plot.svg();
}

std::string memory_timeline(const replay::ReplayRecord& record) {
  if (record.memory.empty()) return "";
  constexpr double kGiB = 1 << 30;
  Curve host;
  Curve device;
  for (const replay::MemorySample& sample : record.memory) {
    host.push_back({sample.at_s, static_cast<double>(sample.host_bytes) / kGiB});
    if (sample.device_bytes)
      device.push_back({sample.at_s, static_cast<double>(*sample.device_bytes) / kGiB});
  }
  return key({"host", "device"}) + timeline("GiB of memory in use", record.wall_s, {host, device});
}

std::string timelines(const replay::ReplayRecord& record) {
  Bins running(record.wall_s);
  Bins waiting(record.wall_s);
  Bins tokens(record.wall_s);
  for (const replay::LoadSample& sample : record.samples) {
    running.add(sample.at_s, static_cast<double>(sample.running));
    waiting.add(sample.at_s, static_cast<double>(sample.waiting));
  }
  for (const replay::RequestRecord& request : record.requests) {
    for (const replay::Delivery& delivery : request.deliveries)
      tokens.add(delivery.at_s, static_cast<double>(delivery.tokens));
  }
  return fmt::format("<section><h2>Over time</h2>{}{}{}{}</section>", key({"running", "waiting"}),
                     timeline("requests", record.wall_s, {running.means(), waiting.means()}),
                     timeline("output tokens/s", record.wall_s, {tokens.per_second()}),
                     memory_timeline(record));
}

// The share of `sorted` values up to each of them.
Curve shares(const std::vector<double>& sorted, double least) {
  constexpr int kPoints = 400;
  Curve curve;
  for (int i = 0; i <= kPoints; ++i) {
    const double share = static_cast<double>(i) / kPoints;
    curve.push_back({std::max(least, quantile_of_sorted(sorted, share)), share * 100});
  }
  return curve;
}

std::string distribution_plot(std::string_view title, std::vector<double> values,
                              const std::optional<double>& limit) {
  if (values.empty()) return "";
  std::sort(values.begin(), values.end());
  const double least = std::max(values.front(), 1e-3);
  const double most = std::max({values.back(), least * 1.01, limit.value_or(0)});
  ReplayPlot plot(fmt::format("% of {}, up to so many ms", title), "ms",
                  {least, most, most > 20 * least}, {0, 100});
  plot.curve("line", shares(values, least));
  if (limit) plot.limit(*limit);
  return plot.svg();
}

std::string distributions(const ReplayReport& report) {
  const replay::ReplayRecord& record = report.record;
  return "<section><h2>Latencies</h2>" +
         distribution_plot("times to first token", first_token_ms(record),
                           report.limits.first_token_ms) +
         distribution_plot("times between deliveries", between_deliveries_ms(record),
                           report.limits.between_deliveries_ms) +
         distribution_plot("times end to end", end_to_end_ms(record), std::nullopt) + "</section>";
}

std::string steps(const replay::ReplayRecord& record) {
  std::string html =
      "<section><h2>Steps</h2><div class=\"scroll\"><table><tr><th>bucket</th><th>ran</th>"
      "<th>steps</th><th>tokens</th><th>padding</th><th>share of padding</th></tr>";
  for (const StepGroup& group : step_groups(record.steps)) {
    html += fmt::format(
        "<tr><td>{} {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        group.bucket, group.is_mixed ? "tokens, with prompts" : "sequences", name(group.mode),
        html_grouped(group.steps), html_grouped(group.tokens), html_grouped(group.padding),
        percent(group.padding_share()));
  }
  return html + "</table></div></section>";
}

}  // namespace

std::string replay_html(const ReplayReport& report) {
  const replay::ReplayRecord& record = report.record;
  const replay::Figures& figures = report.figures;
  std::string body = "<div class=\"tiles\">";
  body += html_tile(html_grouped(std::llround(figures.output_tokens_per_s)), "output tokens/s");
  body += html_tile(fmt::format("{:.2f}", figures.requests_per_s), "requests/s");
  body += html_tile(fmt::format("{:.1f} ms", figures.first_token.p50),
                    "time to first token, the median");
  body += html_tile(fmt::format("{:.1f} ms", figures.between_deliveries.p99),
                    "between deliveries, 99 % of them");
  if (report.limits.any()) {
    body += html_tile(fmt::format("{:.2f}", figures.good_requests_per_s),
                      "requests/s within the limits");
  }
  if (record.decode && record.wall_s > 0) {
    body += html_tile(percent((record.decode->seconds + record.mixed->seconds) / record.wall_s),
                      html_escaped(report.busy));
  }
  body += "</div>";
  body += timelines(record) + distributions(report) + steps(record);
  std::string what;
  for (const std::string& line : report.what)
    what += (what.empty() ? "" : "; ") + line;
  return html_page("encore " + report.title, "A replay of requests", what, body, kReplayStyle);
}

}  // namespace encore::measure
