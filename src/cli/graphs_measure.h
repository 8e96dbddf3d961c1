// encore graphs --measure: what ladders cost and give, measured on this device.
#pragma once

#include "cli/graphs_estimate.h"

namespace encore::cli {

// Loads the model once a ladder of decode or token sizes; prints strategies, numbers of recordings,
// orders of recording, and the memory plan beside the driver's figure. A row is logged, and a table printed, as soon as
// it is measured. Errors: those of loading.
void measure_graphs(const GraphsOptions& options);

}  // namespace encore::cli
