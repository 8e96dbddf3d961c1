// Measures how long a recording takes.
#pragma once

#include "backend/device.h"

namespace encore {

// Returns the median time of `runs` replays, measured by the device's events after one replay that
// warms up. Waits for all replays. Units: microseconds.
double median_replay_us(Device& device, Stream& stream, const Recording& recording, int runs);

}  // namespace encore
