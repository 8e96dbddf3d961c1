// Compares the programs of the ranks of a model before anything is recorded.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "backend/communicator.h"
#include "loader/loaded_model.h"

namespace encore::loader {

// Lists everything that must be the same on all ranks, one item a line: options, sizes in the order
// in which they are recorded, nodes in order with their dependencies, weights, and the layout of
// the arena. The rows and columns that a rank cuts out of the weights are not listed.
std::string lockstep_text(const passes::Program& program, const LoadOptions& options,
                          const runtime::Coverage& coverage);

// Compares the lockstep_text() of all ranks. Errors: kCompile, on all ranks, naming the first line
// in which the text of a rank differs from that of rank 0.
void require_lockstep(Communicator& communicator, int rank, const std::string& text);

// Lists which rows and columns of which tensors the rank's weights are made of, one item a line.
std::string slices_text(const passes::Program& program);
// Rank 0 compares the slices_text() of each rank with the text that `expected` returns for that
// rank. Errors: kCompile naming the first line that differs. Rank 0 throws it, and all other ranks
// end with it at a later meeting.
void require_slices(Communicator& communicator, int rank, const std::string& text,
                    const std::function<std::string(int rank)>& expected);

// Does `work` on every rank or on none: where it fails on one rank, the ranks on which it succeeded
// call `undo`. Returns the first error. Errors: those of Communicator::exchange().
std::optional<Error> do_on_all(Communicator& communicator, int rank, const std::string& what,
                               const std::function<void()>& work,
                               const std::function<void()>& undo);

// Returns the smallest number of KV pages for which any rank has room, where this rank has room for
// `num_pages`. All ranks get that number, because they keep the KV of the same tokens.
int64_t fewest_pages(Communicator& communicator, int rank, int64_t num_pages);

}  // namespace encore::loader
