// Prints the launch table of a bucket without loading a model: it reserves addresses that have no
// memory behind them.
#pragma once

#include <cstdint>
#include <string>

#include "backend/device.h"
#include "passes/program.h"

namespace encore::diagnose {

// Returns the launch table of a whole step as text, with its hash. The table shows which kernel
// runs each node at these sizes. Errors: as runtime::lower; kMemory when the addresses cannot be
// reserved.
std::string bucket_text(const passes::Program& program, Device& device, const StepKey& step);

// recording_text() records a step and prints the recording's nodes in order. Each line has the op
// that launched the node, the way the node follows the one before it, and the device function.
// recording_dot() prints, for Graphviz, which ops each op waits for. Errors: as bucket_text(), and
// the errors of recording.
std::string recording_text(const passes::Program& program, Device& device, const StepKey& step);
std::string recording_dot(const passes::Program& program, Device& device, const StepKey& step);

}  // namespace encore::diagnose
