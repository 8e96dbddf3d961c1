// Reading the files that --config and `encore config explain` name.
#pragma once

#include <string>

#include "cli/command.h"
#include "config/dialect.h"

namespace encore::cli {

// --dialect: whose keys a file has; empty: told from them. Lifetime: `dialect` must outlive the parse.
Option* add_dialect_option(Command& verb, std::string& dialect);
// Errors: those of config::load().
config::Config load_config(const std::string& path, const std::string& dialect);
// Errors: kUnsupported where a key is refused.
void check_refused(const config::Config& config);
// Checks a configuration that is about to be used: says which keys are left out, refused or
// unknown. Errors: kUnsupported where answers would mean something else without a key.
void check_meaning(const config::Config& config);

}  // namespace encore::cli
