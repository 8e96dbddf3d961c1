#include "measure/html.h"

#include <cmath>

#include <fmt/format.h>

namespace encore::measure {
namespace {

constexpr const char* kPageStyle = R"(
:root { color-scheme: light dark; --back: #fbfbf9; --card: #ffffff; --text: #1d1d1b; --soft: #65655f;
  --line: #e3e3dd; --bar: #2f6fde; --mark: #d97706; --miss: #b4232c; --other: #9db7e8; }
@media (prefers-color-scheme: dark) {
  :root { --back: #141413; --card: #1d1d1b; --text: #ecece8; --soft: #a09f98; --line: #34342f;
    --bar: #6ea2ff; --mark: #f59e5b; --miss: #ff7b81; --other: #44639f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 18px; margin: 0 0 2px; }
p { margin: 0 0 10px; color: var(--soft); overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 20px 0; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 16px; } .tile b { display: block; font-size: 22px; font-weight: 600;
  font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); font-size: 13px; }
section { padding: 18px 20px; margin: 0 0 16px; overflow-x: auto; }
svg { display: block; width: 100%; min-width: 660px; height: auto; margin: 6px 0 14px; }
svg text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
svg text.name { fill: var(--text); font-size: 13px; } svg text.chosen { font-weight: 600; }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .bar { fill: var(--bar); }
.other { fill: var(--other); } .miss { fill: var(--miss); } .track { fill: var(--line); }
.mark { stroke: var(--mark); stroke-width: 1.5; } .through { stroke: var(--mark); opacity: .16; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 5px 0 12px; }
details { color: var(--soft); } summary { cursor: pointer; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 14px;
  font-variant-numeric: tabular-nums; color: var(--text); }
th, td { white-space: nowrap; text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
code { font-size: 13px; }
)";

}  // namespace

std::string html_page(std::string_view title, std::string_view heading, std::string_view what,
                      std::string_view body, std::string_view style) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>{}</title><style>{}{}</style></head><body><main>"
      "<h1>{}</h1><p>{}</p>{}</main></body></html>\n",
      title, kPageStyle, style, heading, html_escaped(what), body);
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_tile(std::string_view figure, std::string_view what) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", figure, what);
}

std::string html_grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto place = static_cast<std::ptrdiff_t>(digits.size()) - 3; place > 0; place -= 3)
    digits.insert(static_cast<size_t>(place), "&#8239;");
  return digits;
}

double nice_step(double range, int count) {
  const double raw = range / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

}  // namespace encore::measure
