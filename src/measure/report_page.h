// Builds the HTML page that a verb's --html option writes: one file that loads nothing else, whose
// script draws the report.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/embedded_file.h"
#include "base/json.h"

namespace encore::measure {

// Returns the page for a verb's report. `report` is the verb's --json output plus data that only
// the page draws. The script src/measure/page/report.js finds the way to draw the report by the
// verb's name. `what` is the line below the heading.
std::string report_page(std::string_view verb, std::string_view what, const json::object& report);

// Returns the files of src/measure/page/, which are embedded in the executable.
std::span<const EmbeddedFile> embedded_files();

}  // namespace encore::measure
