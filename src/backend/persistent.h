// Persistent kernels: a chain of launches as one kernel. Its blocks all run at the same time, one a
// multiprocessor, and hand over from stage to stage among themselves, so that what a launch costs
// falls away and the weights of a stage are under way before the stage before it ends. Stages run
// the device code of the launches they stand for, and make the same bits.
//
// A stage's result that only stages of the same chain read is not written to memory.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backend/kernel.h"

namespace encore {

// A launch as a stage. Lifetime: points to the launch.
struct Stage {
  // Where an input comes from: the output of a stage of the same chain, or from outside of it.
  struct Origin {
    int stage = -1;   // -1: from outside
    int output = -1;  // -1: it is a view of an output

    friend bool operator==(const Origin&, const Origin&) = default;
  };

  const Kernel* kernel = nullptr;
  const KernelArgs* args = nullptr;
  std::vector<Origin> inputs;    // by input
  std::vector<bool> read_after;  // by output: does anything after the chain read it?
};

// One row of a device's table of persistent kernels. The first whose `accepts` holds is taken.
struct PersistentKernel {
  Kernel row;  // its name, as shown by inspect and profilers
  // May the launch be a stage? Cheap; decides together with `accepts`.
  bool (*accepts_stage)(const Kernel& kernel, const KernelArgs& args) = nullptr;
  // Looks at all of a stage but `read_after`, which is that of a longer chain.
  bool (*accepts)(std::span<const Stage> chain) = nullptr;
  // As Kernel::bind. One launch at a time may run: two on one device would wait for each other's
  // multiprocessors.
  BoundLaunch (*bind)(Device& device, std::span<const Stage> chain) = nullptr;
};

}  // namespace encore
