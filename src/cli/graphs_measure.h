// Implements `encore graphs --measure`, which measures what ladders cost and gain on this device.
#pragma once

#include "cli/graphs_estimate.h"

namespace encore::cli {

// Measures ladders of decode sizes and of token sizes; loads the model anew for each ladder. Prints
// tables that compare strategies, numbers of sizes, and orders of recording, and sets the memory
// plan beside the driver's count of memory. Each row is logged as soon as it is measured, and each
// table is printed as soon as it is complete. Errors: those of loading.
void measure_graphs(const GraphsOptions& options);

}  // namespace encore::cli
