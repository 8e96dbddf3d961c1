// Plans the work of one step, and cuts it to the limits of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sched/sequence.h"

namespace encore::sched {

// The work of one step: a row for each sequence, in the order of the step's rows.
struct Plan {
  std::vector<ScheduledTokens> rows;
  bool has_new_pages = false;     // some sequence of it got pages that no earlier step knows
  bool has_given_tokens = false;  // some sequence of it has tokens that only the host knows

  // With drafts.
  [[nodiscard]] int64_t num_tokens() const;
  // The most drafts that a row has.
  [[nodiscard]] int64_t num_drafts() const;
  // Tokens per sequence when all rows have the same number, of which at most `max_q` are no drafts.
  [[nodiscard]] std::optional<int> uniform_q(int64_t max_q) const;
  // Tokens of sequences that do not generate: rows of more than `max_q`.
  [[nodiscard]] int64_t prompt_tokens(int64_t max_q) const;
  // Are the rows those of the step before, each with the token that it sampled there, and all with as many
  // drafts as there?
  // Then a step leaves its inputs as those of this one, and the host has nothing to add.
  [[nodiscard]] bool continues(const Plan& before) const;
  // Moves a sequence's row on: a step before it gave that many tokens more than was counted when this one
  // was planned.
  void move_on(SequenceId sequence, int64_t count);
};

// The scheduler knows so much of a step before the number of its drafts is chosen.
struct DraftableStep {
  int64_t sequences = 0;      // that generate
  int64_t without = 0;        // of them, those that take no drafts
  int64_t prompt_tokens = 0;  // beside them at most; 0: all sequences generate
};

// REQUIRES: max_num_tokens is at least max_batch_size.
struct SchedulerLimits {
  int64_t max_num_tokens = 2048;
  int64_t max_batch_size = 64;
  // Tokens of a step that is not uniform, where those are fewer: steps are split so that no larger
  // one is formed.
  std::optional<int64_t> max_mixed_tokens = {};
  int64_t max_q = 1;  // tokens per sequence of a uniform step at most
  // Tokens that a step guesses behind the one of each sequence that generates and takes drafts, and, where
  // all generate, behind that of each. Where there are any, max_q is 1 and max_num_tokens at least
  // max_batch_size * (1 + num_drafts).
  int64_t num_drafts = 0;
  // Chooses another number of drafts, at most as many, for a step. Absent: it is num_drafts. It is asked
  // each time that a step is planned, of which some are never run.
  std::function<int64_t(const DraftableStep&)> choose_drafts = {};
  // Sizes to which mixed steps are padded, ascending: the ladder's. Empty: padding costs nothing.
  std::vector<int64_t> token_buckets = {};
  // The part of a step's tokens for prompts that a long prompt gets at most while short ones want the
  // rest; those are short that fit this part. 1: every prompt waits for those that came before it.
  double prompt_share = 0.5;
  // May a sequence of a higher priority take the place and the pages of one that runs?
  bool preempts_by_priority = false;
};

// Treats a row as decode if it has at most max_q tokens; a short last chunk of a prompt counts too.
inline bool generates(const ScheduledTokens& row, const SchedulerLimits& limits) {
  return row.count <= limits.max_q;
}

// The room that a step has for prompts. Units: tokens
struct PromptRoom {
  int64_t tokens = 0;  // none where generating rows fill a mixed step
  int64_t share = 0;   // of them, SchedulerLimits::prompt_share; at least 1
};
// The room beside rows that generate `generating` tokens. `max_prompt_tokens` limits it in a step
// in which other sequences generate, which wait for the step; absent: as many as fit.
PromptRoom prompt_room(int64_t generating, const SchedulerLimits& limits,
                       std::optional<int64_t> max_prompt_tokens);

// Does the uncached part of a sequence's prompt fit a share?
inline bool is_short(const Sequence& sequence, const PromptRoom& room) {
  return sequence.num_to_compute <= room.share;
}

// Cuts `wanted` to the first tokens that a step may hold. Its rows that generate come first, and
// stay. Where they would fill a mixed step, every row keeps one token, which is a uniform step. A
// prompt that does not fit is cut, a little shorter where that saves more padding than it cuts.
// `max_prompt_tokens`: as for prompt_room().
Plan cut_to_fit(Plan wanted, const SchedulerLimits& limits,
                std::optional<int64_t> max_prompt_tokens);

}  // namespace encore::sched
