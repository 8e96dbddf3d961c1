// A bucket's lowered table without loading a model: addresses are reserved, nothing is behind them.
#pragma once

#include <cstdint>
#include <string>

#include "backend/device.h"
#include "passes/program.h"

namespace encore::diagnose {

// Prints the table of a whole step, with its hash: which kernel runs each node at these sizes.
// Errors: as runtime::lower; kMemory when not even the addresses can be had.
std::string bucket_text(const passes::Program& program, Device& device, const StepKey& step);

// Records a step and prints its nodes in order, each with the op that launched it, how it follows
// the one before, and the device function. recording_dot() prints, for Graphviz, which ops each op
// waits for. Errors: as bucket_text(), and those of recording.
std::string recording_text(const passes::Program& program, Device& device, const StepKey& step);
std::string recording_dot(const passes::Program& program, Device& device, const StepKey& step);

}  // namespace encore::diagnose
