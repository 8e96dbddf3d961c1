// Declares clocks, and how often a benchmark of one op repeats its launch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/device.h"

namespace encore::measure {

double now_seconds();
double thread_cpu_seconds();  // CPU time of the calling thread, including waits that spin

// Holds the default of a benchmark's option for GPUs, and for the CPU, which is slower.
struct ByDevice {
  int64_t gpu = 0;
  int64_t cpu = 0;

  [[nodiscard]] constexpr int64_t on(DeviceKind device) const {
    return device == DeviceKind::kCpu ? cpu : gpu;
  }
  // Returns the default as words for --help: "5, on the CPU 3", or "3" where both are the same.
  [[nodiscard]] std::string text() const;
};

// Holds how often a benchmark replays one op's launches where --runs is not given; num_replays()
// returns --runs if it is.
inline constexpr ByDevice kReplays{.gpu = 15, .cpu = 3};
int num_replays(std::optional<int> runs, const Device& device);
// Returns how many copies of `bytes` bytes of operands a benchmark of one op reads in turn, so that
// caches hold none of them: enough to make up `rotation_mb` MiB, but from 2 to 256.
int64_t num_copies(int64_t rotation_mb, int64_t bytes);

}  // namespace encore::measure
