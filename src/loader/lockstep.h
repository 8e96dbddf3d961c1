// Before the ranks of a model record anything, they compare what they are about to run.
#pragma once

#include <functional>
#include <optional>
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

// Lists which rows and columns of which tensors the rank's weights are made of, a line each.
std::string slices_text(const passes::Program& program);
// Errors: kCompile naming the first line in which a rank's slices are not those of its share, which
// `expected` lists; on all ranks, sooner or later.
void require_slices(Communicator& communicator, int rank, const std::string& text,
                    const std::function<std::string(int rank)>& expected);

// Does something on every rank or on none: where it fails on one, the others undo it. Returns the first
// error. Errors: those of a meeting.
std::optional<Error> do_on_all(Communicator& communicator, int rank, const std::string& what,
                               const std::function<void()>& work,
                               const std::function<void()>& undo);

// The fewest pages that a rank has room for, given this one's: all ranks keep the same tokens.
int64_t fewest_pages(Communicator& communicator, int rank, int64_t num_pages);

}  // namespace encore::loader
