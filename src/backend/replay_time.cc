#include "backend/replay_time.h"

#include <vector>

#include "base/statistics.h"

namespace encore {

double median_replay_us(Device& device, Stream& stream, const Recording& recording, int runs) {
  const auto start = device.create_event();
  const auto end = device.create_event();
  std::vector<double> times;
  for (int i = 0; i <= runs; ++i) {
    stream.record(*start);
    stream.replay(recording);
    stream.record(*end);
    stream.synchronize();
    if (i > 0) times.push_back(end->milliseconds_since(*start) * 1e3);
  }
  return median(std::move(times));
}

}  // namespace encore
