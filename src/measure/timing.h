// Clocks, and how a benchmark repeats one launch.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/device.h"

namespace encore::measure {

double now_seconds();
double thread_cpu_seconds();  // of the calling thread, waiting that spins included

// Replays of one op's launches: what --runs says, else as many as that device needs.
int num_replays(std::optional<int> runs, const Device& device);
// Copies of operands that a benchmark of one op reads in turn, so that caches hold none of them: what
// makes up `rotation_mb` MiB, within limits.
int64_t num_copies(int64_t rotation_mb, int64_t bytes);

}  // namespace encore::measure
