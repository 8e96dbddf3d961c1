// A program on file, with the recordings made of it: what to look at, or to compare with another
// start's, when a replay misbehaves.
#pragma once

#include <filesystem>

#include "runtime/executor.h"

namespace encore::diagnose {

// Writes the graph, its segments and arena, and a line a recording to DIR/NAME-HASH.txt, where the
// hash is the text's: what is the same has the same name. Returns the path.
// Errors: kUsage when the directory cannot be written.
std::filesystem::path save_program(const runtime::Executor& executor,
                                   const std::filesystem::path& directory);

}  // namespace encore::diagnose
