// Implements `encore graphs --measure`, which measures what ladders cost and gain on this device.
#pragma once

#include "cli/graphs_estimate.h"

namespace encore::cli {

// Measures ladders of decode sizes and token sizes; loads the model anew for each ladder. Prints
// strategies, numbers of recordings, orders of recording, and the memory plan beside the driver's
// figure. Each row is logged as soon as it is measured, and each table printed as soon as it is
// complete. Errors: those of loading.
void measure_graphs(const GraphsOptions& options);

}  // namespace encore::cli
