#include "measure/graphs_html.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/table.h"
#include "measure/html.h"

namespace encore::measure {
namespace {

// The histogram of step sizes: where a size lies, in bins as wide as they can be seen.
class SizeAxis {
 public:
  static constexpr double kLeft = 52;
  static constexpr double kRight = kHtmlWidth - 10;

  SizeAxis(int64_t smallest, int64_t largest)
      : is_log_(largest > kLinearUpTo),
        low_(is_log_ ? std::log2(static_cast<double>(smallest)) - 0.1 : 0.5),
        high_(is_log_ ? std::log2(static_cast<double>(largest)) + 0.1
                      : static_cast<double>(largest) + 0.5) {}

  [[nodiscard]] double x(double size) const {
    const double at = is_log_ ? std::log2(size) : size;
    return kLeft + (kRight - kLeft) * (at - low_) / (high_ - low_);
  }
  [[nodiscard]] int num_bins() const {
    return is_log_ ? kLogBins : static_cast<int>(std::lround(high_ - low_));
  }
  [[nodiscard]] int bin(int64_t size) const {
    const double share = (x(static_cast<double>(size)) - kLeft) / (kRight - kLeft);
    return std::clamp(static_cast<int>(share * num_bins()), 0, num_bins() - 1);
  }
  // The sizes that carry a number.
  [[nodiscard]] std::vector<int64_t> ticks() const {
    std::vector<int64_t> ticks;
    if (is_log_) {
      for (auto power = static_cast<int>(std::ceil(low_)); power <= high_; ++power)
        ticks.push_back(int64_t{1} << power);
      return ticks;
    }
    const double step = std::max(1.0, nice_step(high_ - low_, 12));
    for (double size = step; size <= high_; size += step)
      ticks.push_back(std::llround(size));
    return ticks;
  }
  [[nodiscard]] bool is_log() const { return is_log_; }

 private:
  static constexpr int64_t kLinearUpTo = 256;
  static constexpr int kLogBins = 110;

  bool is_log_;
  double low_;
  double high_;
};

// The bars of ladders: a row the step has, a row of padding, a row that no recording holds.
constexpr const char* kGraphsStyle = R"(
.pad { fill: var(--mark); } .tick { stroke: var(--text); stroke-width: 1.5; }
.over { color: var(--miss); }
)";

struct Bin {
  int64_t steps = 0;
  int64_t missed = 0;  // of them, above the ladder
  int64_t first = 0;   // sizes that occur in it
  int64_t last = 0;
};

std::string histogram_svg(const LadderPlot& plot) {
  constexpr double kTop = 12;
  constexpr double kBottom = 210;
  constexpr double kHeight = 262;
  const planning::Histogram& histogram = plot.workload.histogram;
  const auto& sizes = plot.chosen.ladder.sizes();
  const SizeAxis axis(std::min(histogram.front().size, sizes.front()),
                      std::max(histogram.back().size, sizes.back()));
  std::vector<Bin> bins(axis.num_bins());
  for (const planning::SizeCount& count : histogram) {
    Bin& bin = bins[axis.bin(count.size)];
    if (bin.steps == 0) bin.first = count.size;
    bin.last = count.size;
    bin.steps += count.steps;
    if (count.size > sizes.back()) bin.missed += count.steps;
  }
  const int64_t most = std::max_element(bins.begin(), bins.end(), [](const Bin& a, const Bin& b) {
                         return a.steps < b.steps;
                       })->steps;
  const auto y = [&](double steps) {
    return kBottom - (kBottom - kTop) * steps / static_cast<double>(most);
  };

  std::string svg = fmt::format(
      R"(<svg viewBox="0 0 {} {}" role="img" aria-label="Steps by size, with the ladder's sizes">)",
      kHtmlWidth, kHeight);
  const double step = std::max(1.0, nice_step(static_cast<double>(most), 4));
  for (double at = 0; at <= static_cast<double>(most); at += step) {
    svg += fmt::format(
        R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/><text x="{3}" y="{4:.1f}" text-anchor="end">{5}</text>)",
        SizeAxis::kLeft, SizeAxis::kRight, y(at), SizeAxis::kLeft - 7, y(at) + 4,
        html_grouped(std::llround(at)));
  }
  for (const int64_t size : sizes) {
    svg += fmt::format(R"(<line class="through" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)",
                       axis.x(static_cast<double>(size)), kTop, kBottom);
  }
  const double width = (SizeAxis::kRight - SizeAxis::kLeft) / axis.num_bins();
  for (size_t i = 0; i < bins.size(); ++i) {
    const Bin& bin = bins[i];
    if (bin.steps == 0) continue;
    const std::string range = bin.first == bin.last ? std::to_string(bin.first)
                                                    : fmt::format("{} to {}", bin.first, bin.last);
    const auto bar = [&](const char* style, int64_t from, int64_t to) {
      if (from == to) return;
      const double top = y(static_cast<double>(to));
      svg += fmt::format(
          R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{} {}: {} steps</title></rect>)",
          style, SizeAxis::kLeft + width * static_cast<double>(i) + width * 0.08, top, width * 0.84,
          std::max(y(static_cast<double>(from)) - top, 0.8), range, plot.workload.rows,
          html_grouped(to - from));
    };
    bar("bar", 0, bin.steps - bin.missed);
    bar("miss", bin.steps - bin.missed, bin.steps);
  }
  svg += fmt::format(R"(<line class="axis" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>)", SizeAxis::kLeft,
                     SizeAxis::kRight, kBottom);
  for (const int64_t size : sizes) {
    svg += fmt::format(
        R"(<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"><title>bucket {3}</title></line>)",
        axis.x(static_cast<double>(size)), kBottom + 2, kBottom + 12, size);
  }
  for (const int64_t size : axis.ticks()) {
    svg += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>)",
                       axis.x(static_cast<double>(size)), kBottom + 28, html_grouped(size));
  }
  svg += fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{} in the step{}</text></svg>)",
                     SizeAxis::kRight, kHeight - 4, plot.workload.rows,
                     axis.is_log() ? ", logarithmic" : "");
  return svg;
}

// One horizontal bar with its figure behind it.
std::string bar_svg(double x, double y, double width, double share, const char* style,
                    const std::string& figure) {
  return fmt::format(R"(<rect class="track" x="{0}" y="{1}" width="{2}" height="12" rx="3"/>)"
                     R"(<rect class="{3}" x="{0}" y="{1}" width="{4:.1f}" height="12" rx="3"/>)"
                     R"(<text x="{5}" y="{6}">{7}</text>)",
                     x, y, width, style, width * std::clamp(share, 0.0, 1.0), x + width + 8,
                     y + 10.5, figure);
}

// Every ladder's rows as one bar: those of the steps it holds, their padding, and those of the
// steps above it. All bars have one scale, so that a ladder with few and small hits does not look
// thrifty.
std::string comparison_svg(const std::vector<const planning::PricedLadder*>& ladders) {
  constexpr double kX = 190;
  constexpr double kWidth = 520;
  constexpr double kRowHeight = 26;
  constexpr double kBarHeight = 12;
  int64_t most = 1;
  for (const planning::PricedLadder* ladder : ladders)
    most = std::max(most, ladder->price.rows + ladder->price.padding + ladder->eager_rows);
  const auto width = [&](int64_t rows) {
    return kWidth * static_cast<double>(rows) / static_cast<double>(most);
  };
  std::string svg = fmt::format(
      R"(<svg viewBox="0 0 {} {}" role="img" aria-label="Rows by ladder: replayed, padding, eager"><text x="{}" y="14">rows</text><text x="{}" y="14">steps held, padding</text>)",
      kHtmlWidth, 26 + kRowHeight * static_cast<double>(ladders.size()), kX, kX + kWidth + 10);
  for (size_t i = 0; i < ladders.size(); ++i) {
    const planning::PricedLadder& ladder = *ladders[i];
    const planning::LadderPrice& price = ladder.price;
    const double y = 26 + kRowHeight * static_cast<double>(i);
    svg += fmt::format(R"(<text class="name{}" x="0" y="{}">{}</text>)", i == 0 ? " chosen" : "",
                       y + 11, html_escaped(ladder.name));
    svg += fmt::format(R"(<text x="178" y="{}" text-anchor="end">{} sizes</text>)", y + 11,
                       ladder.ladder.sizes().size());
    double x = kX;
    const auto part = [&](const char* style, const char* what, int64_t rows) {
      if (rows == 0) return;
      svg += fmt::format(
          R"(<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{} {}</title></rect>)",
          style, x, y, width(rows), kBarHeight, html_grouped(rows), what);
      x += width(rows);
    };
    part(i == 0 ? "bar" : "other", "rows replayed", price.rows);
    part("pad", "rows of padding", price.padding);
    part("miss", "rows above the ladder, eager", ladder.eager_rows);
    svg += fmt::format(
        R"(<line class="tick" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"><title>the best {3} sizes pad {4}</title></line>)",
        kX + width(price.rows + ladder.optimum_padding), y - 2, y + kBarHeight + 2,
        ladder.ladder.sizes().size(), html_grouped(ladder.optimum_padding));
    svg += fmt::format(R"(<text x="{}" y="{}">{}, {}</text>)", kX + kWidth + 10, y + 10.5,
                       percent(price.hit_rate()), percent(price.waste()));
  }
  return svg + "</svg>";
}

std::string ladder_rows(const std::vector<const planning::PricedLadder*>& rows) {
  std::string html =
      "<div class=\"scroll\"><table><tr><th>ladder</th><th>sizes</th><th>largest</th>"
      "<th>hit rate</th><th>rows eager</th><th>padding</th><th>waste</th><th>optimum of as "
      "many</th></tr>";
  for (const planning::PricedLadder* row : rows) {
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</"
        "td></"
        "tr>",
        html_escaped(row->name), row->ladder.sizes().size(),
        html_grouped(row->ladder.sizes().back()), percent(row->price.hit_rate()),
        html_grouped(row->eager_rows), html_grouped(row->price.padding),
        percent(row->price.waste()), html_grouped(row->optimum_padding));
  }
  return html + "</table></div>";
}

std::string ladder_section(const LadderPlot& plot) {
  const planning::Workload& workload = plot.workload;
  std::string title(workload.what);
  title[0] = static_cast<char>(title[0] - 'a' + 'A');
  if (workload.histogram.empty())
    return fmt::format("<section><h2>{}</h2><p>None in the log.</p></section>", title);
  std::vector<const planning::PricedLadder*> rows{&plot.chosen};
  for (const planning::PricedLadder& other : plot.others)
    rows.push_back(&other);
  return fmt::format(
      "<section><h2>{}</h2><p>{} steps, matched on {}. Bars: steps by size<span class=\"key\" "
      "style=\"background:var(--bar)\"></span>recorded<span class=\"key\" "
      "style=\"background:var(--miss)\"></span>above the ladder<span class=\"key\" "
      "style=\"background:var(--mark)\"></span>the ladder's {} sizes</p>"
      "<p{}>{}.</p>{}"
      "<p>Beside the named schedules, capped at the largest step, all on one scale: rows<span "
      "class=\"key\" style=\"background:var(--bar)\"></span>replayed<span class=\"key\" "
      "style=\"background:var(--mark)\"></span>padding<span class=\"key\" "
      "style=\"background:var(--miss)\"></span>of steps above the ladder, eager. The mark is where "
      "the padding of the best ladder of as many sizes would end.</p>{}"
      "<details><summary>Figures and sizes</summary>{}<p><code>{}</code></p></details></section>",
      title, html_grouped(plot.chosen.price.steps), workload.rows,
      plot.chosen.ladder.sizes().size(), plot.chosen.meets_target() ? "" : " class=\"over\"",
      planning::verdict_text(plot.chosen, workload), histogram_svg(plot), comparison_svg(rows),
      ladder_rows(rows), planning::sizes_text(plot.chosen.ladder));
}

std::string shares_section(const char* title, const char* what,
                           const std::vector<planning::Share>& shares, int64_t num_steps,
                           const char* style) {
  constexpr double kBarX = 240;
  if (shares.empty()) return "";
  const double height = 24 * static_cast<double>(shares.size()) + 6;
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)",
                                kHtmlWidth, height, title);
  for (size_t i = 0; i < shares.size(); ++i) {
    const double y = 24 * static_cast<double>(i) + 4;
    const double share =
        static_cast<double>(shares[i].steps) / static_cast<double>(std::max<int64_t>(num_steps, 1));
    svg += fmt::format(R"(<text class="name" x="0" y="{}">{}</text>)", y + 11,
                       html_escaped(shares[i].name));
    svg += bar_svg(kBarX, y, 500, share, style,
                   fmt::format("{} ({})", percent(share), html_grouped(shares[i].steps)));
  }
  return fmt::format("<section><h2>{}</h2><p>{}</p>{}</svg></section>", title, what, svg);
}

}  // namespace

std::string graphs_html(const GraphsPage& page) {
  int64_t rows = 0;
  int64_t hits = 0;
  int64_t eager_rows = 0;
  for (const LadderPlot& plot : page.ladders) {
    rows += plot.chosen.price.rows;
    hits += plot.chosen.price.hits;
    eager_rows += plot.chosen.eager_rows;
  }
  const int64_t launched = rows + page.padding + eager_rows;
  const double waste =
      launched == 0 ? 0 : static_cast<double>(page.padding) / static_cast<double>(launched);
  std::string html = "<div class=\"tiles\">";
  html += html_tile(html_grouped(page.num_steps), "steps");
  html += html_tile(percent(page.hit_rate), "hit rate");
  html += html_tile(percent(waste), "of all rows are padding");
  html += html_tile(html_grouped(page.num_steps - hits),
                    fmt::format("steps above the ladders, eager: {} of all rows",
                                percent(launched == 0 ? 0
                                                      : static_cast<double>(eager_rows) /
                                                            static_cast<double>(launched))));
  html += "</div>";
  for (const LadderPlot& plot : page.ladders)
    html += ladder_section(plot);
  html += shares_section("Modes", "How the steps were run when the log was written.", page.modes,
                         page.num_steps, "bar");
  html +=
      shares_section("Fallbacks", "Steps that no recording holds, or that were not run as wanted.",
                     page.reasons, page.num_steps, "miss");
  int64_t num_admissible = 0;
  for (const planning::Share& share : page.admissible)
    num_admissible += share.steps;
  html += shares_section("Admissible steps",
                         "Every step that the scheduler may form, by how it would be run.",
                         page.admissible, num_admissible, "bar");
  return html_page("encore graphs", "Coverage by recordings", page.log, html, kGraphsStyle);
}

}  // namespace encore::measure
