// Clocks, and how a benchmark repeats one launch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/device.h"

namespace encore::measure {

double now_seconds();
double thread_cpu_seconds();  // of the calling thread, waiting that spins included

// A number that an option of a benchmark has where it is not given: on a GPU, and on the CPU, which is
// slower.
struct ByDevice {
  int64_t gpu = 0;
  int64_t cpu = 0;

  [[nodiscard]] constexpr int64_t on(DeviceKind device) const {
    return device == DeviceKind::kCpu ? cpu : gpu;
  }
  // The words of the help: "5, on the CPU 3", or "3" where both are the same.
  [[nodiscard]] std::string text() const;
};

// Replays of one op's launches: what --runs says, else as many as that device needs.
inline constexpr ByDevice kReplays{.gpu = 15, .cpu = 3};
int num_replays(std::optional<int> runs, const Device& device);
// Copies of operands that a benchmark of one op reads in turn, so that caches hold none of them: what
// makes up `rotation_mb` MiB, within limits.
int64_t num_copies(int64_t rotation_mb, int64_t bytes);

}  // namespace encore::measure
