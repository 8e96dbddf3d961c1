// Plays the host's side of the tests in system scope. It is always correct, whatever form the GPU
// uses.
#pragma once

#include "backend/cuda/litmus/field.h"

namespace encore::cuda::litmus {

// Plays the role that the GPU does not play, for all groups, until every round is done. It uses as
// many threads as this machine can spare. Adds to the tally's rounds, stale and lost. Lifetime:
// `field.cells` is host memory that the GPU sees at the same addresses.
void play_host_end(const Field& field, int flags, Tally& tally);

}  // namespace encore::cuda::litmus
