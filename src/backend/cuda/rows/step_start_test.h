// Declares two launches. Together they tell whether a launch between them keeps the second from
// starting before the first has ended.
#pragma once

#include "backend/device.h"

namespace encore::cuda {

// Words in the device's memory through which the two launches tell what they saw. All are 0 before
// the launches.
struct ReadAhead {
  float* value = nullptr;  // 1 once write_late() ends
  float* seen = nullptr;   // the value that read_ahead() found
  int* began = nullptr;    // 1 once read_ahead() has stored `seen`
};

// Lets the next launch start at once, and ends once read_ahead() has read the value, or after some 20 ms.
void write_late(Stream& stream, const ReadAhead& words);
// Reads the value before it waits for the launch in front of it.
void read_ahead(Stream& stream, const ReadAhead& words);

}  // namespace encore::cuda
