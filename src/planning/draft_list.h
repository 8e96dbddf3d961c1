// Chooses the numbers of drafts that steps may have, before anything is recorded. A number is
// chosen only if it saves time by the estimated cost of the program's ops.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "passes/program.h"
#include "planning/floor.h"

namespace encore::planning {

// Returns the least time of a step with `num_drafts` drafts per sequence, from the bytes and
// operations of its ops. Where the step has no drafts, the reads of the draft model do not count.
// Units: seconds
double drafting_seconds(const passes::Program& program, int64_t sequences, int64_t num_drafts,
                        int64_t context, const Rates& rates);

// Returns the average number of tokens that a step gives a sequence (E), where each draft is right
// with probability `probability` if all drafts in front of it are right.
double tokens_of_step(double probability, int64_t num_drafts);

struct DraftList {
  std::vector<int64_t>
      counts;                 // ascending, three at most; empty: no number of drafts gains anything
  int64_t max_sequences = 0;  // in larger batches, no number of drafts gains
  // These fields explain the choice. `considered` is the largest number of the list, or 1 if the
  // list is empty. `cost` is the time of a step of the smallest batch with that many drafts over
  // the time of a step without drafts. `tokens` is the number of tokens that a sequence gets from
  // that step where the probability of a right draft is kMostRight.
  int64_t considered = 0;
  double cost = 0;
  double tokens = 0;
};

// kMostRight is the highest acceptance that is considered. Most draft models have fewer than nine
// of ten drafts accepted, so a number of drafts that gains nothing at this rate never gains
// anything.
inline constexpr double kMostRight = 0.9;

// Chooses numbers from 1 to the program's num_drafts. The list that it returns comes nearest to the
// speed of the best number at each batch size of `batches` (ascending), on average over acceptances
// from 0.5 to kMostRight. `context` is the number of tokens that each sequence has.
// REQUIRES: the program has drafts.
DraftList choose_draft_list(const passes::Program& program, std::span<const int64_t> batches,
                            int64_t context, const Rates& rates);

// Returns a line that explains the list: "guesses: 1, 2, 4 or none, in batches of up to 64: ...".
std::string to_text(const DraftList& list);

}  // namespace encore::planning
