// Reads the files that --config and `encore config explain` name.
#pragma once

#include <string>

#include "cli/command.h"
#include "config/dialect.h"

namespace encore::cli {

// Adds --dialect, which says which system's keys a file has. If it is empty, the dialect is derived
// from the keys.
// Lifetime: `dialect` must outlive the parse.
Option* add_dialect_option(Command& verb, std::string& dialect);
// Loads a configuration file. Errors: those of config::load().
config::Config load_config(const std::string& path, const std::string& dialect);
// Refuses a configuration that has a refused key. Errors: kUnsupported.
void check_refused(const config::Config& config);
// Checks a configuration that is about to be used, and logs which keys are left out, refused or
// unknown. Errors: kUnsupported where answers would have another meaning without a key.
void check_meaning(const config::Config& config);

}  // namespace encore::cli
