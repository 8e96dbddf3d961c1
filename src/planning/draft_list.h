// The numbers of drafts that steps may have are chosen before anything is recorded: of those alone that gain time by
// the cost of the program's ops.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "passes/program.h"
#include "planning/floor.h"

namespace encore::planning {

// The least time of a step with a number of drafts, as its ops' bytes and operations say, without what a draft model
// reads where a step guesses nothing. Units: seconds
double drafting_seconds(const passes::Program& program, int64_t sequences, int64_t num_drafts,
                        int64_t context, const Rates& rates);

// E: the tokens of a sequence in a step, on average, where each draft is right with that probability if those in
// front of it are.
double tokens_of_step(double probability, int64_t num_drafts);

struct DraftList {
  std::vector<int64_t>
      counts;                 // ascending, three at most; empty: no number of drafts gains anything
  int64_t max_sequences = 0;  // steps of more gain nothing, whatever their number of drafts
  // Why: the time of a step of the smallest batch with so many drafts, the most of the list, or 1 without a list, over
  // that of one without drafts, and its tokens where kMostRight of them are right.
  int64_t considered = 0;
  double cost = 0;
  double tokens = 0;
};

// Nine drafts in ten are more than most draft models reach: a number of drafts that gains nothing then never does.
inline constexpr double kMostRight = 0.9;

// Chooses among 1 to the drafts of the program the list that is nearest to the best number at each size of `batches`,
// ascending, on average over acceptances from 0.5 to kMostRight. `context`: tokens of a sequence.
// REQUIRES: the program has drafts.
DraftList choose_draft_list(const passes::Program& program, std::span<const int64_t> batches,
                            int64_t context, const Rates& rates);

// "guesses: 1, 2, 4 or none, in batches of up to 64: ...": why that list.
std::string to_text(const DraftList& list);

}  // namespace encore::planning
