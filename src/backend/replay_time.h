// How long a recording takes.
#pragma once

#include "backend/device.h"

namespace encore {

// Of `runs` replays after one that warms up, the median by the device's events. Waits for them.
// Units: microseconds.
double median_replay_us(Device& device, Stream& stream, const Recording& recording, int runs);

}  // namespace encore
