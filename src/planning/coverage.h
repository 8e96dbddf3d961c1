// Finds how every step that may be asked for will run: the proof behind --eager-steps forbid.
//
// Admissible are, with B sequences from 1 to max_batch_size,
//   uniform   B x q tokens, q from 1 to max_q and 1 + num_drafts, up to max_num_tokens
//   mixed     T tokens, more than B (one sequence: more than max_q), up to mixed_tokens(), without drafts and with
// and no more than max_seq_len of one sequence.
// Each goes through `choose`; mixed steps that share a bucket of T and one of B differ in padding
// alone, and the first of them goes for all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/dispatch.h"
#include "runtime/limits.h"

namespace encore::planning {

// The limits under which no step is above a ladder: mixed steps end at the largest bucket of
// tokens, and sequences at the largest bucket whose uniform steps all fit in max_num_tokens. An
// empty ladder is the default one. Errors: kUsage when not even the smallest bucket fits.
runtime::Limits split_limits(runtime::Limits limits, const runtime::Ladder& sequences,
                             const runtime::Ladder& tokens);

struct CoverageReport {
  using Key = std::tuple<bool, runtime::Mode, runtime::Reason>;  // uniform?, how, why
  struct Padded {
    StepKey step;  // before padding
    runtime::Choice choice;
  };

  std::map<Key, int64_t> steps;
  std::optional<Padded> first_eager;    // uniform before mixed, the fewest sequences, then tokens
  std::optional<Padded> worst_uniform;  // the most padding; absent without any
  std::optional<Padded> worst_mixed;

  [[nodiscard]] int64_t num_steps() const;
  [[nodiscard]] int64_t num_steps(runtime::Mode mode) const;
  // Steps that are replayed, of all. 1 without steps.
  [[nodiscard]] double share() const;
};

// Chooses a recording for every admissible step, and counts them.
CoverageReport cover(const runtime::Limits& limits, const runtime::Coverage& coverage);

// Accepts recordings that leave no admissible step eager. Errors: kUsage, naming the first such
// step, the reason and the remedy, and how many there are.
void require_coverage(const runtime::Limits& limits, const runtime::Coverage& coverage);

}  // namespace encore::planning
