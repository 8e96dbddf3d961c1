// A bucket's lowered table without loading a model: addresses are reserved, nothing is behind them.
#pragma once

#include <cstdint>
#include <string>

#include "backend/device.h"
#include "passes/program.h"

namespace encore::cli {

// The table of a whole step as text, with its hash: which kernel runs each node at these sizes.
// Errors: as runtime::lower; kMemory when not even the addresses can be had.
std::string bucket_text(const passes::Program& program, Device& device, const StepShape& step);

}  // namespace encore::cli
