// Turns the table's options into flags of a verb, and adds --config FILE, which says the same in
// Encore's keys or another system's.
#pragma once

#include <string_view>
#include <vector>

#include "cli/command.h"
#include "config/settings.h"

namespace encore::cli {

// Lists the options of the table that a verb takes.
struct Taken {
  std::vector<config::Group> groups;
  std::vector<std::string_view> also = {};  // of other groups
  std::vector<std::string_view> but = {};   // of these groups, those without effect on the verb
};

// The options of a verb that loads a model and runs its loop.
Taken running_options();

// Adds the flags of those options, and --config and --dialect. Before the verb runs, `settings` gets what
// its flags say, else the file, else the table's defaults. A key of the file that the verb does not take is
// named on stderr and has no effect.
// Errors, before the verb runs: kUsage with file and line; kUnsupported for a key whose feature Encore
// lacks. Lifetime: `settings` must outlive the parse.
void take_options(Command& verb, config::Settings& settings, const Taken& taken);

}  // namespace encore::cli
