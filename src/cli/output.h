// Results on stdout and in files.
#pragma once

#include <string>
#include <string_view>

#include "base/table.h"

namespace encore::cli {

// Writes to stdout at once. Errors: kUsage when stdout cannot be written (a full disk).
void print(std::string_view text);

// A whole file. Errors: kUsage, naming it, when it cannot be written.
void write_file(const std::string& path, std::string_view text);

// Each line as a YAML comment.
std::string commented(const std::string& text);

}  // namespace encore::cli
