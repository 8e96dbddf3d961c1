// Before the ranks of a model record anything, they compare what they are about to run.
#pragma once

#include <string>

#include "backend/communicator.h"
#include "loader/loaded_model.h"

namespace encore::loader {

// Lists what must be the same on all ranks, a line each: options, sizes in the order in which they are
// recorded, nodes in their order with dependencies, weights and the arena's layout. The rows and columns
// that a rank cuts out of the weights are not listed.
std::string lockstep_text(const passes::Program& program, const LoadOptions& options,
                          const runtime::Coverage& coverage);

// Errors: kCompile naming the first line in which a rank's text differs from rank 0's; on all ranks.
void require_lockstep(Communicator& communicator, int rank, const std::string& text);

// The fewest pages that a rank has room for, given this one's: all ranks keep the same tokens.
int64_t fewest_pages(Communicator& communicator, int rank, int64_t num_pages);

}  // namespace encore::loader
