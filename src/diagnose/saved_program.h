// Writes a program to a file, with the recordings made of it. The file can be read, or compared
// with another start's file, when a replay misbehaves.
#pragma once

#include <filesystem>

#include "runtime/executor.h"

namespace encore::diagnose {

// Writes the graph, its segments and arena, and a line for each recording to DIR/NAME-HASH.txt. The
// hash is that of the text, so equal texts get equal names. Returns the path.
// Errors: kUsage when the directory cannot be written.
std::filesystem::path save_program(const runtime::Executor& executor,
                                   const std::filesystem::path& directory);

}  // namespace encore::diagnose
