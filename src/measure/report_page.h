// The page that --html of a verb writes: its report, drawn by a browser. One file, which loads nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/embedded_file.h"
#include "base/json.h"

namespace encore::measure {

// `report` is what the verb prints with --json, with what only its page draws; src/measure/page/report.js
// names the verbs and draws their reports. `what` is the line below the heading.
std::string report_page(std::string_view verb, std::string_view what, const json::object& report);

// The files of src/measure/page/.
std::span<const EmbeddedFile> embedded_files();

}  // namespace encore::measure
