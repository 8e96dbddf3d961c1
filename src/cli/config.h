// --config FILE: a file in the place of flags, in Encore's keys or another system's.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the name CLI11 chose
class App;
}

namespace encore::cli {

struct ConfigOptions {
  std::string path;     // empty: none
  std::string dialect;  // empty: told from its keys
};

// Adds --config and --dialect. Lifetime: `options` must outlive the parse.
void add_config_options(CLI::App& verb, ConfigOptions& options);

// Gives the verb the file's values as if its flags had been given, but for those that were: flags
// win. To be called first in the verb's callback. A key that concerns other verbs alone is named on
// stderr and has no effect.
// Errors: kUsage with file and line; kUnsupported for a key whose feature Encore lacks.
void apply_config(CLI::App& verb, const ConfigOptions& options);

}  // namespace encore::cli
