#include "measure/timing.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/processor_time.h"
#include "base/rounding.h"

namespace encore::measure {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_seconds() {
  return std::chrono::duration<double>(thread_processor_time()).count();
}

std::string ByDevice::text() const {
  return gpu == cpu ? std::to_string(gpu) : fmt::format("{}, on the CPU {}", gpu, cpu);
}

int num_replays(std::optional<int> runs, const Device& device) {
  return runs.value_or(static_cast<int>(kReplays.on(device.kind())));
}

int64_t num_copies(int64_t rotation_mb, int64_t bytes) {
  return std::clamp<int64_t>(div_up(rotation_mb << 20, bytes), 2, 256);
}

}  // namespace encore::measure
