// Lets tests and tools see and change the memory inside an executor's steps.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "runtime/executor.h"

namespace encore::diagnose {

// The content to fill padding rows, and all intermediate memory before each step, with. It shows
// whether they affect results.
enum class Poison : uint8_t { kNone, kNaN, kLarge };

// Fills all intermediate memory with the poison, so that nothing is left there from an earlier
// step.
void poison(runtime::Executor& executor, Poison poison);
// Calls poison() before each step from now on, and fills the embeddings of padding tokens with the
// poison.
void poison_steps(runtime::Executor& executor, Poison poison);

// Checks that all memory which the replays of the last begun step use still lies where it was
// recorded.
// Errors: kCompile; the message names the operand that has moved.
void check_addresses(runtime::Executor& executor);

// Returns the elements of a value of the last begun step, without gaps between rows. Waits for the
// step.
std::vector<std::byte> read_value(runtime::Executor& executor, ir::ValueId value);

// Copies the first `bytes` bytes of a graph output of the last begun step to the host. Waits for
// the step.
void read_output(runtime::Executor& executor, int index, void* host, int64_t bytes);

// Runs the first `count` launches of the step that Executor::begin() prepared, in the way that
// `mode` runs them. Where `mode` replays launches that have no recording of their own, they are
// recorded for this call. Waits for the end.
void run_prefix(runtime::Executor& executor, const StepLengths& lengths, runtime::Mode mode,
                size_t count);

}  // namespace encore::diagnose
