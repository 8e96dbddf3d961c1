// Writes results to stdout and to files.
#pragma once

#include <string>
#include <string_view>

#include "base/table.h"

namespace encore::cli {

// Writes to stdout and flushes it. Errors: kUsage when stdout cannot be written (a full disk).
void print(std::string_view text);

// Writes a whole file. Errors: kUsage, naming the file, when it cannot be written.
void write_file(const std::string& path, std::string_view text);

// Returns the text with each line turned into a YAML comment.
std::string commented(const std::string& text);

}  // namespace encore::cli
