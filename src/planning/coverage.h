// Finds how every admissible step will run. This proves, for --eager-steps forbid, that each of
// them is replayed.
//
// A step is admissible if it has from 1 to max_batch_size sequences (B), no more than max_seq_len
// tokens of one sequence, and is one of these:
//  uniform   B x q tokens, q from 1 to max_q and 1 + num_drafts, up to max_num_tokens
//  mixed     T tokens, more than B (one sequence: more than max_q), up to mixed_tokens(), without drafts and with
// `choose` is asked about each step. Mixed steps that share a bucket of T and a bucket of B differ
// in padding alone, so it is asked about the first of them only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/dispatch.h"
#include "runtime/limits.h"

namespace encore::planning {

// Returns `limits`, lowered so that no step is larger than the largest size of the ladder that
// holds it. Mixed steps end at the largest bucket of tokens; batches end at the largest bucket of
// sequences whose uniform steps all fit in max_num_tokens. An empty ladder stands for the default
// one.
// Errors: kUsage when not even the smallest bucket fits.
runtime::Limits split_limits(runtime::Limits limits, const runtime::Ladder& sequences,
                             const runtime::Ladder& tokens);

struct CoverageReport {
  // Identifies a class of steps by three facts: whether the steps are uniform, the mode in which
  // they run, and the reason for that mode.
  using Key = std::tuple<bool, runtime::Mode, runtime::Reason>;
  struct Padded {
    StepKey step;  // the step before padding
    runtime::Choice choice;
  };

  std::map<Key, int64_t> steps;
  std::optional<Padded> first_eager;    // the first in the order of place() in coverage.cc
  std::optional<Padded> worst_uniform;  // the uniform step with the most padding, if any is padded
  std::optional<Padded> worst_mixed;

  [[nodiscard]] int64_t num_steps() const;
  [[nodiscard]] int64_t num_steps(runtime::Mode mode) const;
  // Returns the share of all steps that are replayed, or 1 if there are no steps.
  [[nodiscard]] double share() const;
};

// Chooses how to run every admissible step, and counts the steps by mode and reason.
CoverageReport cover(const runtime::Limits& limits, const runtime::Coverage& coverage);

// Checks that the recordings leave no admissible step eager. Errors: kUsage, naming the first eager
// step, the reason, the remedy, and the number of eager steps.
void require_coverage(const runtime::Limits& limits, const runtime::Coverage& coverage);

}  // namespace encore::planning
