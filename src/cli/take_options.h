// Turns options of the table config::all_options() into flags of a verb. Also adds --config FILE, a
// file that sets the same options in Encore's keys or another system's.
#pragma once

#include <string_view>
#include <vector>

#include "cli/command.h"
#include "config/settings.h"

namespace encore::cli {

// Lists the options of config::all_options() that a verb takes.
struct Taken {
  std::vector<config::Group> groups;
  std::vector<std::string_view> also = {};  // single options of other groups
  std::vector<std::string_view> but = {};   // options of `groups` that have no effect on the verb
};

// Returns the options of a verb that loads a model and runs its loop.
Taken running_options();

// Adds the flags of the options in `taken`, and --config and --dialect. Before the verb runs, each
// setting gets the value of its flag, or else the value in the file, or else its default in
// config::all_options(). A key of the file that the verb does not take is named on stderr and has
// no effect.
// Errors, before the verb runs: kUsage with file and line; kUnsupported for a key whose feature
// Encore lacks. Lifetime: `settings` must outlive the parse.
void take_options(Command& verb, config::Settings& settings, const Taken& taken);

}  // namespace encore::cli
