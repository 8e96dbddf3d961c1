#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/table.h"
#include "measure/html.h"
#include "measure/profile.h"
#include "planning/ladder_report.h"

namespace encore::measure {
namespace {

constexpr const char* kProfileStyle = R"(
.c0 { fill: #2f6fde; } .c1 { fill: #d97706; } .c2 { fill: #2a9d6f; } .c3 { fill: #a855c7; }
.c4 { fill: #c2415b; } .c5 { fill: #0e9bb5; } .c6 { fill: #8a6d1f; } .c7 { fill: #6b7fd7; }
.c8 { fill: #7a9a2e; } .c9 { fill: #b5653a; } .c10 { fill: #5e6b78; } .c11 { fill: #d06fb0; }
.c12 { fill: #1f4d3a; } .c13 { fill: #e0b93f; } .c14 { fill: #4b3f8f; } .c15 { fill: #8c2f1b; }
.copy { fill: var(--text); } .call { fill: var(--soft); } .wait { fill: var(--soft); opacity: .3; }
.gap { fill: var(--miss); opacity: .75; } .idle { fill: var(--miss); opacity: .3; }
rect:hover { opacity: .7; } .row { display: flex; } .names { flex: 0 0 80px; position: sticky; left: 0;
  background: var(--card); font-size: 13px; display: grid; grid-template-rows: 20px 56px 20px; }
.names span { align-self: center; color: var(--soft); }
svg.steps { flex: 1; min-width: 0; width: auto; height: 104px; margin: 0; }
.row-end { position: sticky; left: 0; width: fit-content; font-size: 13px; }
#z4:checked ~ .scroll .rows { width: 400%; } #z16:checked ~ .scroll .rows { width: 1600%; }
label { margin: 0 12px 0 4px; color: var(--soft); font-size: 13px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; color: var(--soft); font-size: 13px;
  margin: 0 0 10px; } .legend svg { display: inline; width: 10px; min-width: 0; height: 10px;
  margin: 0 5px 0 0; }
)";

constexpr int kNumColours = 16;

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
           key("idle", "idle between steps") + key("call", "host: call") +
           key("wait", "host: waits") + "</div>";
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
  double longest = profile.floor.us;
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
  if (profile.floor.us > 0) {
    const double x = kLeft + profile.floor.us * scale;
    svg += fmt::format(
        R"(<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}"><title>floor: {2:.1f} us</title></line>)",
        x, height, profile.floor.us);
  }
  return svg + "</svg>";
}

// One step: its kernels in two lanes, so that overlap shows, its copies, and the host's calls.
// Lengths are shares of the drawing's width, which may be any.
class Timeline {
 public:
  // `longest_ns` is the time that the whole width stands for.
  Timeline(const StepTimes& times, int64_t longest_ns, const Colours& colours)
      : colours_(colours), longest_ns_(std::max(1.0, static_cast<double>(longest_ns))) {
    axis();
    int kernels = 0;
    for (const TraceSpan& span : times.sample) {
      if (!span.on_device()) {
        rect(span, span.kind == TraceKind::kWaitCall ? "wait" : "call", kHostY, 20);
      } else if (span.kind == TraceKind::kCopy) {
        rect(span, "copy", kDeviceY, 48);
      } else {
        rect(span, colours_.style(span.op), kDeviceY + 24 * (kernels++ % 2), 24);
      }
    }
  }
  [[nodiscard]] std::string svg() const {
    return R"(<svg class="steps" role="img" aria-label="device and host over time">)" + svg_ +
           "</svg>";
  }

 private:
  static constexpr int kDeviceY = 20;
  static constexpr int kHostY = 76;
  static constexpr int kNumTicks = 5;
  static constexpr double kLeastShare = 0.06;

  [[nodiscard]] double share(double ns) const { return 100 * ns / longest_ns_; }
  void axis() {
    const double step = nice_step(longest_ns_ / 1e3, kNumTicks);
    for (double us = 0; us * 1e3 <= longest_ns_; us += step) {
      const double x = share(us * 1e3);
      svg_ += fmt::format(
          R"(<line class="grid" x1="{0:.3f}%" x2="{0:.3f}%" y1="14" y2="100"/><text x="{0:.3f}%" y="11" text-anchor="{1}">{2:g} us</text>)",
          x,
          us == 0  ? "start"
          : x > 90 ? "end"
                   : "middle",
          us);
    }
  }
  void rect(const TraceSpan& span, const std::string& style, int y, int height) {
    const auto start = static_cast<double>(span.start_ns);
    const auto length = static_cast<double>(span.end_ns - span.start_ns);
    const double x = std::min(share(start), 100 - kLeastShare);
    const std::string function = short_name(span.name);
    const std::string what = span.op.empty() ? function : span.op + ": " + function;
    svg_ += fmt::format(
        R"(<rect class="{}" x="{:.3f}%" y="{}" width="{:.3f}%" height="{}"><title>{}, {:.2f} us, from {:.2f}</title></rect>)",
        style, x, y, std::clamp(share(length), kLeastShare, 100 - x), height, html_escaped(what),
        length / 1e3, start / 1e3);
  }

  const Colours& colours_;
  double longest_ns_;
  std::string svg_;
};

std::string timelines(const Profile& profile, const Colours& colours) {
  if (!profile.is_traced()) return "";
  int64_t longest_ns = 0;
  for (const ModeProfile& mode : profile.modes)
    longest_ns = std::max(longest_ns, mode.times->sample_ns);
  std::string rows;
  for (const ModeProfile& mode : profile.modes) {
    const auto kernels =
        std::count_if(mode.times->sample.begin(), mode.times->sample.end(),
                      [](const TraceSpan& span) { return span.kind == TraceKind::kKernel; });
    rows += fmt::format(
        R"(<div class="row"><div class="names"><b>{}</b><span>device</span><span>host</span></div>{}</div><p class="row-end">{} kernels, {:.1f} us</p>)",
        mode.mode, Timeline(*mode.times, longest_ns, colours).svg(), kernels,
        static_cast<double>(mode.times->sample_ns) / 1e3);
  }
  return fmt::format(
      "<section><h2>One step in time</h2><p>A step of the usual length in each mode, all on one "
      "scale. Neighbouring kernels lie in two lanes, so that overlap shows; where both are empty "
      "the device waits. Point at a bar for its name.</p>"
      R"(<input type="radio" name="zoom" id="z1" checked><label for="z1">whole</label>)"
      R"(<input type="radio" name="zoom" id="z4"><label for="z4">4 times</label>)"
      R"(<input type="radio" name="zoom" id="z16"><label for="z16">16 times</label>)"
      R"(<div class="scroll"><div class="rows">{}</div></div></section>)",
      rows);
}

// A table of the parts of a step, with their times and shares in each mode.
std::string part_rows(const Profile& profile) {
  std::string html = "<div class=\"scroll\"><table><tr><th>part</th>";
  for (const ModeProfile& mode : profile.modes)
    html += fmt::format("<th>{} us</th><th>share</th>", mode.mode);
  html += "</tr>";
  const size_t num_parts = step_parts(profile, *profile.modes.front().times).size();
  for (size_t i = 0; i < num_parts; ++i) {
    const StepPart named = step_parts(profile, *profile.modes.front().times)[i];
    html += fmt::format("<tr><td>{} ({})</td>", named.what, named.source);
    for (const ModeProfile& mode : profile.modes) {
      const double us = step_parts(profile, *mode.times)[i].us;
      html += fmt::format("<td>{:.1f}</td><td>{}</td>", us, percent(us / mode.times->step_us));
    }
    html += "</tr>";
  }
  return html + "</table></div>";
}

std::string group_rows(const Profile& profile) {
  std::string html =
      "<div class=\"scroll\"><table><tr><th>op</th><th>nodes</th><th>bytes</th>"
      "<th>floor us</th>";
  for (const ModeProfile& mode : profile.modes)
    html += fmt::format("<th>{} us</th>", mode.mode);
  html += "<th>share</th><th>over floor</th></tr>";
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
    html += fmt::format("<td>{}</td>", share_of_step(profile, last));
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
  if (profile.floor.us > 0) {
    body += html_tile(fmt::format("{:.2f}", last.step_us / profile.floor.us),
                      fmt::format("of its floor, {:.1f} us", profile.floor.us));
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
  if (profile.is_traced()) {
    body += fmt::format("<section><h2>By part</h2><p>{}.</p>{}</section>",
                        load_and_compute_text(profile), part_rows(profile));
  }
  body += fmt::format(
      "<section><h2>By op</h2><p>Own time a step; the last two columns are of {}.</p>{}</section>",
      last.mode, group_rows(profile));
  return html_page("encore profile", "Where a step's time goes", profile.what, body, kProfileStyle);
}

}  // namespace encore::measure
