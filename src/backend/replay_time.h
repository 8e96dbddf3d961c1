// Measures how long a recording takes.
#pragma once

#include "backend/device.h"

namespace encore {

// The median of `runs` replays, by the device's events, after one replay that warms up. Waits for
// them. Units: microseconds.
double median_replay_us(Device& device, Stream& stream, const Recording& recording, int runs);

}  // namespace encore
