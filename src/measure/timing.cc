#include "measure/timing.h"

#include <algorithm>
#include <chrono>

#include "base/processor_time.h"
#include "base/rounding.h"

namespace encore::measure {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_seconds() {
  return std::chrono::duration<double>(thread_processor_time()).count();
}

int num_replays(std::optional<int> runs, const Device& device) {
  return runs.value_or(device.kind() == DeviceKind::kCpu ? 3 : 15);
}

int64_t num_copies(int64_t rotation_mb, int64_t bytes) {
  return std::clamp<int64_t>(div_up(rotation_mb << 20, bytes), 2, 256);
}

}  // namespace encore::measure
