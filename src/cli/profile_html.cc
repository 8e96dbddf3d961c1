#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/html.h"
#include "cli/profile.h"

namespace encore::cli {
namespace {

constexpr const char* kStyle = R"(
.c0 { fill: #2f6fde; } .c1 { fill: #d97706; } .c2 { fill: #2a9d6f; } .c3 { fill: #a855c7; }
.c4 { fill: #c2415b; } .c5 { fill: #0e9bb5; } .c6 { fill: #8a6d1f; } .c7 { fill: #6b7fd7; }
.c8 { fill: #7a9a2e; } .c9 { fill: #b5653a; } .c10 { fill: #5e6b78; } .c11 { fill: #d06fb0; }
.copy { fill: var(--text); } .call { fill: var(--soft); opacity: .55; } .wait { fill: var(--line); }
.gap { fill: var(--miss); opacity: .75; } .idle { fill: var(--miss); opacity: .3; }
.lines { width: auto; min-width: 1500px; } rect:hover { opacity: .7; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; color: var(--soft); font-size: 13px;
  margin: 0 0 10px; } .legend svg { display: inline; width: 10px; min-width: 0; height: 10px;
  margin: 0 5px 0 0; }
)";

constexpr int kNumColours = 12;

// A group has one colour in every drawing.
class Colours {
 public:
  explicit Colours(std::vector<std::string> groups) : groups_(std::move(groups)) {}
  [[nodiscard]] std::string style(const std::string& group) const {
    const auto place = std::find(groups_.begin(), groups_.end(), group);
    return fmt::format("c{}", (place - groups_.begin()) % kNumColours);
  }
  [[nodiscard]] std::string legend() const {
    std::string html = "<div class=\"legend\">";
    for (const std::string& group : groups_)
      html += key(style(group), group);
    return html + key("copy", "copy") + key("gap", "gap between kernels") +
           key("idle", "idle between steps") + "</div>";
  }

 private:
  static std::string key(const std::string& style, const std::string& text) {
    return fmt::format(
        R"(<span><svg viewBox="0 0 10 10"><rect class="{}" width="10" height="10" rx="2"/></svg>{}</span>)",
        style, html_escaped(text));
  }
  std::vector<std::string> groups_;
};

// One bar a mode, all on one scale: what the traced steps consist of.
std::string shares_svg(const Profile& profile, const Colours& colours) {
  constexpr double kLeft = 96;
  constexpr double kRow = 44;
  double longest = profile.floor_us;
  for (const ModeProfile& mode : profile.modes)
    longest = std::max(longest, mode.times ? mode.times->step_us : mode.step_us);
  const double scale = (kHtmlWidth - kLeft - 90) / longest;
  const double height = kRow * static_cast<double>(profile.modes.size()) + 8;
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img">)", kHtmlWidth, height);
  for (size_t i = 0; i < profile.modes.size(); ++i) {
    const ModeProfile& mode = profile.modes[i];
    const double y = kRow * static_cast<double>(i) + 8;
    double x = kLeft;
    const auto part = [&](const std::string& style, const std::string& what, double us) {
      if (us <= 0) return;
      svg += fmt::format(
          R"(<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="24"><title>{}: {:.1f} us</title></rect>)",
          style, x, y, us * scale, html_escaped(what), us);
      x += us * scale;
    };
    svg += fmt::format(R"(<text class="name" x="0" y="{}">{}</text>)", y + 16, mode.mode);
    if (mode.times) {
      for (const std::string& group : profile.groups()) {
        const auto place = mode.times->kernels.find(group);
        if (place != mode.times->kernels.end())
          part(colours.style(group), group, place->second.own_us);
      }
      part("copy", "copies", mode.times->copies_us);
      part("gap", "gaps between kernels", mode.times->gaps_us);
      part("idle", "idle between steps", mode.times->idle_us);
    } else {
      part("bar", "step", mode.step_us);
    }
    svg += fmt::format(R"(<text x="{:.1f}" y="{}">{:.0f} us</text>)", x + 6, y + 16,
                       mode.times ? mode.times->step_us : mode.step_us);
  }
  if (profile.floor_us > 0) {
    const double x = kLeft + profile.floor_us * scale;
    svg += fmt::format(
        R"(<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}"><title>floor: {2:.1f} us</title></line>)",
        x, height, profile.floor_us);
  }
  return svg + "</svg>";
}

// One step: its kernels in two lanes, so that overlap shows, its copies, and the host's calls.
class Timeline {
 public:
  Timeline(const StepTimes& times, const Colours& colours)
      : colours_(colours),
        width_(std::max(1500.0, 8.0 * static_cast<double>(times.sample.size()))),
        scale_((width_ - kLeft - 10) / std::max(1.0, static_cast<double>(times.sample_ns))) {
    svg_ = fmt::format(
        R"(<svg class="lines" style="width:{0:.0f}px" viewBox="0 0 {0:.0f} {1}" role="img">)",
        width_, kHeight);
    axis(static_cast<double>(times.sample_ns));
    int kernels = 0;
    bool has_calls = false;
    for (const TraceSpan& span : times.sample) {
      if (!span.on_device()) {
        has_calls = true;
        rect(span, span.kind == TraceKind::kWaitCall ? "wait" : "call", kHostY, 20);
      } else if (span.kind == TraceKind::kCopy) {
        rect(span, "copy", kDeviceY, 48);
      } else {
        rect(span, colours_.style(span.op), kDeviceY + 24 * (kernels++ % 2), 24);
      }
    }
    svg_ += fmt::format(R"(<text class="name" x="0" y="{}">device</text>)", kDeviceY + 28);
    if (has_calls)
      svg_ += fmt::format(R"(<text class="name" x="0" y="{}">host</text>)", kHostY + 14);
  }
  [[nodiscard]] std::string svg() const { return svg_ + "</svg>"; }

 private:
  static constexpr double kLeft = 58;
  static constexpr double kDeviceY = 24;
  static constexpr double kHostY = 84;
  static constexpr double kHeight = 112;

  void axis(double ns) {
    const double step = nice_step(ns / 1e3, 12);
    for (double us = 0; us * 1e3 <= ns; us += step) {
      const double x = kLeft + us * 1e3 * scale_;
      svg_ += fmt::format(
          R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="16" y2="{1}"/><text x="{0:.1f}" y="11">{2:g} us</text>)",
          x, kHeight, us);
    }
  }
  void rect(const TraceSpan& span, const std::string& style, double y, double height) {
    const auto start = static_cast<double>(span.start_ns);
    const auto length = static_cast<double>(span.end_ns - span.start_ns);
    const std::string function = short_name(span.name);
    const std::string what = span.op.empty() ? function : span.op + ": " + function;
    svg_ += fmt::format(
        R"(<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"><title>{}, {:.2f} us, from {:.2f}</title></rect>)",
        style, kLeft + start * scale_, y, std::max(length * scale_, 0.4), height,
        html_escaped(what), length / 1e3, start / 1e3);
  }

  const Colours& colours_;
  double width_;
  double scale_;
  std::string svg_;
};

std::string timelines(const Profile& profile, const Colours& colours) {
  std::string html;
  for (const ModeProfile& mode : profile.modes) {
    if (!mode.times) continue;
    const auto kernels =
        std::count_if(mode.times->sample.begin(), mode.times->sample.end(),
                      [](const TraceSpan& span) { return span.kind == TraceKind::kKernel; });
    html += fmt::format(
        "<section><h2>{}</h2><p>One step of the usual length, {} kernels; each mode on its own "
        "scale. Neighbours lie in two lanes, so that overlap shows. Point at one for its "
        "name.</p><div class=\"scroll\">{}</div></section>",
        mode.mode, kernels, Timeline(*mode.times, colours).svg());
  }
  return html;
}

std::string group_rows(const Profile& profile) {
  std::string html =
      "<div class=\"scroll\"><table><tr><th>op</th><th>nodes</th><th>bytes</th>"
      "<th>floor us</th>";
  for (const ModeProfile& mode : profile.modes)
    html += fmt::format("<th>{} us</th>", mode.mode);
  html += "<th>over floor</th></tr>";
  for (const std::string& group : profile.groups()) {
    const auto place = profile.floors.find(group);
    const GroupFloor floor = place == profile.floors.end() ? GroupFloor{} : place->second;
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td>", html_escaped(group),
                        floor.nodes, html_grouped(floor.bytes), floor.us);
    double last = 0;
    for (const ModeProfile& mode : profile.modes) {
      last = 0;
      if (mode.times && mode.times->kernels.count(group) > 0)
        last = mode.times->kernels.at(group).own_us;
      html += fmt::format("<td>{:.1f}</td>", last);
    }
    html += floor.us > 0 && last > 0 ? fmt::format("<td>{:.2f}</td></tr>", last / floor.us)
                                     : "<td></td></tr>";
  }
  return html + "</table></div>";
}

}  // namespace

std::string profile_html(const Profile& profile) {
  const Colours colours(profile.groups());
  std::string body = "<div class=\"tiles\">";
  const ModeProfile& last = profile.modes.back();
  body += html_tile(fmt::format("{:.1f} us", last.step_us), "a step, " + last.mode);
  if (profile.floor_us > 0) {
    body += html_tile(fmt::format("{:.2f}", last.step_us / profile.floor_us),
                      fmt::format("of its floor, {:.1f} us", profile.floor_us));
  }
  if (last.times) {
    body += html_tile(fmt::format("{:.1f} us", last.times->idle_us), "idle between steps");
    body += html_tile(fmt::format("{:.1f} %", *overhead(last) * 100), "of a step no kernel runs");
  }
  body += "</div>";
  if (!profile.no_tracer.empty())
    body += fmt::format("<section><h2>Not traced</h2><p>{}</p></section>",
                        html_escaped(profile.no_tracer));
  body += fmt::format(
      "<section><h2>What a step consists of</h2><p>A kernel's own time: since everything before it "
      "had ended. The line is the floor: {}.</p>{}{}</section>",
      html_escaped(profile.floor_text), colours.legend(), shares_svg(profile, colours));
  body += timelines(profile, colours);
  body += fmt::format(
      "<section><h2>By op</h2><p>Own time a step; the last column is of {}.</p>{}</section>",
      last.mode, group_rows(profile));
  return html_page("encore profile", "Where a step's time goes", profile.what, body, kStyle);
}

}  // namespace encore::cli
