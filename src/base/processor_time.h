// Measures processor time, which does not depend on who else uses the machine.
#pragma once

#include <chrono>
#include <ctime>

#include "base/error.h"

namespace encore {

// Returns the processor time that the calling thread has used since it began.
inline std::chrono::nanoseconds thread_processor_time() {
  timespec time{};
  ENCORE_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace encore
