#include "measure/report_page.h"

#include <algorithm>

#include "base/error.h"

namespace encore::measure {
namespace {

std::string_view page_file(std::string_view name) {
  const auto files = embedded_files();
  const auto file = std::ranges::find(files, name, &EmbeddedFile::name);
  ENCORE_CHECK(file != files.end(), "{} is not embedded", name);
  return file->content;
}

// Replaces the placeholder @place@ in the page by `text`.
void fill(std::string& page, std::string_view place, std::string_view text) {
  const std::string mark = "@" + std::string(place) + "@";
  const size_t at = page.find(mark);
  ENCORE_CHECK(at != std::string::npos, "the page has no {}", mark);
  page.replace(at, mark.size(), text);
}

// Returns the object as JSON without the character '<', which only strings can contain and which is
// escaped: a "</script>" in a string would end the script.
std::string json_in_script(const json::object& object) {
  std::string text;
  for (const char c : json::to_text(object))
    c == '<' ? text += "\\u003c" : text += c;
  return text;
}

}  // namespace

std::string report_page(std::string_view verb, std::string_view what, const json::object& report) {
  std::string page(page_file("report.html"));
  fill(page, "report.css", page_file("report.css"));
  fill(page, "report.js", page_file("report.js"));
  fill(page, "report",
       json_in_script({{"verb", verb}, {"what", what}, {"report", json::value(report)}}));
  return page;
}

}  // namespace encore::measure
