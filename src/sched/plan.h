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
  bool has_new_pages = false;     // a sequence of the plan got pages that no earlier step knows
  bool has_given_tokens = false;  // a sequence of the plan has tokens that only the host knows

  // Returns the number of tokens of the step, drafts included.
  [[nodiscard]] int64_t num_tokens() const;
  // Returns the largest number of drafts that a row has.
  [[nodiscard]] int64_t num_drafts() const;
  // Returns the tokens per sequence, drafts included, where all rows have the same number of tokens
  // and of drafts and at most `max_q` tokens of each row are no drafts. Otherwise it returns
  // nothing.
  [[nodiscard]] std::optional<int> uniform_q(int64_t max_q) const;
  // Returns the number of tokens in rows of more than `max_q` tokens, whose sequences do not
  // generate yet.
  [[nodiscard]] int64_t prompt_tokens(int64_t max_q) const;
  // Returns whether each row follows the same row of the step before: it computes the one token
  // that was sampled there, with as many drafts. If so, the step before leaves its inputs in the
  // form that this step needs, and the host adds nothing.
  [[nodiscard]] bool continues(const Plan& before) const;
  // Moves the sequence's row `count` positions on: an earlier step gave that many tokens more than
  // were counted when this plan was made.
  void move_on(SequenceId sequence, int64_t count);
};

// Describes a step before its number of drafts is chosen.
struct DraftableStep {
  int64_t sequences = 0;      // sequences that generate
  int64_t without = 0;        // sequences that generate and take no drafts
  int64_t prompt_tokens = 0;  // most prompt tokens in the step; 0: all sequences generate
};

// The limits of a step, and the options of the scheduler. REQUIRES: max_num_tokens is at least
// max_batch_size.
struct SchedulerLimits {
  int64_t max_num_tokens = 2048;
  int64_t max_batch_size = 64;
  // The most tokens of a mixed step, where it is below max_num_tokens. Steps are split so that no
  // mixed step is larger.
  std::optional<int64_t> max_mixed_tokens = {};
  int64_t max_q = 1;  // most tokens per sequence of a uniform step
  // The number of tokens that a step guesses behind the one token of a sequence that generates. In
  // a mixed step only sequences that take drafts have them; in a uniform step every sequence has
  // room for them. Where there are drafts, max_q is 1 and max_num_tokens at least max_batch_size *
  // (1 + num_drafts).
  int64_t num_drafts = 0;
  // Chooses the number of drafts of a step, which is at most num_drafts. Absent: every step has
  // num_drafts. It is called each time that a step is planned, and some planned steps are never
  // run.
  std::function<int64_t(const DraftableStep&)> choose_drafts = {};
  // The sizes to which mixed steps are padded, ascending, as the ladder has them. Empty: steps are
  // not padded.
  std::vector<int64_t> token_buckets = {};
  // The part of a step's prompt tokens that long prompts get at most while short prompts want the
  // rest. A prompt is short if it fits this part. 1: every prompt waits for the prompts that came
  // before it.
  double prompt_share = 0.5;
  // Is true where a sequence of a higher priority may take the place and the pages of one that
  // runs.
  bool preempts_by_priority = false;
};

// Returns whether a row counts as decode: it has at most max_q tokens. A short last chunk of a
// prompt counts, too.
inline bool generates(const ScheduledTokens& row, const SchedulerLimits& limits) {
  return row.count <= limits.max_q;
}

// The room that a step has for prompts. Units: tokens
struct PromptRoom {
  int64_t tokens = 0;  // 0 where generating rows fill a mixed step
  int64_t share = 0;   // SchedulerLimits::prompt_share of `tokens`, at least 1
};
// Returns the room for prompts beside rows that generate and have `generating` tokens.
// `max_prompt_tokens` limits the room in a step in which sequences generate, as they wait for the
// step. Absent: prompts get all tokens that fit.
PromptRoom prompt_room(int64_t generating, const SchedulerLimits& limits,
                       std::optional<int64_t> max_prompt_tokens);

// Returns whether the uncached part of a sequence's prompt fits the share of the room.
inline bool is_short(const Sequence& sequence, const PromptRoom& room) {
  return sequence.num_to_compute <= room.share;
}

// Cuts `wanted` to the first tokens that a step may hold. REQUIRES: rows that generate come first.
// They stay whole. Where they would fill a mixed step, every row keeps one token, which makes a
// uniform step. A prompt that does not fit is cut. It is cut to a bucket where that saves more
// padding than it costs tokens. `max_prompt_tokens`: as for prompt_room().
Plan cut_to_fit(Plan wanted, const SchedulerLimits& limits,
                std::optional<int64_t> max_prompt_tokens);

}  // namespace encore::sched
