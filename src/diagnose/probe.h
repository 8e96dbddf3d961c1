// Lets tests and tools see and change the memory inside an executor's steps.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "runtime/executor.h"

namespace encore::diagnose {

// The content that padding rows, and all intermediate memory before each step, are filled with: it
// shows whether they leak into results.
enum class Poison : uint8_t { kNone, kNaN, kLarge };

// Fills all intermediate memory, so that nothing is left there from an earlier step.
void poison(runtime::Executor& executor, Poison poison);
// Calls poison() before each step from now on, and gives padding tokens such embeddings.
void poison_steps(runtime::Executor& executor, Poison poison);

// Does everything that the step begun last replays lie where it was recorded?
// Errors: kCompile naming the operand that has moved.
void check_addresses(runtime::Executor& executor);

// Elements of a value that the step begun last made, dense. Waits.
std::vector<std::byte> read_value(runtime::Executor& executor, ir::ValueId value);

// Copies the first `bytes` of a graph output of the step begun last to the host. Waits.
void read_output(runtime::Executor& executor, int index, void* host, int64_t bytes);

// The first `count` launches of the step that begin() readied, run as `mode` runs; what `mode`
// replays and was not recorded by itself is recorded for this call. Waits.
void run_prefix(runtime::Executor& executor, const StepLengths& lengths, runtime::Mode mode,
                size_t count);

}  // namespace encore::diagnose
