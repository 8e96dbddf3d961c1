#include "sched/plan.h"

#include <algorithm>

namespace encore::sched {
namespace {

// Returns a plan of the first `room` tokens of `plan`.
Plan first_tokens(Plan plan, int64_t room) {
  for (ScheduledTokens& row : plan.rows) {
    row.count = std::min(row.count, std::max<int64_t>(0, room - row.drafts));
    room -= row.num_tokens();
  }
  std::erase_if(plan.rows, [](const ScheduledTokens& row) { return row.count == 0; });
  return plan;
}

// Returns how many tokens to leave out at the end of a step of `size` tokens, so that the rest
// fills a bucket exactly. It returns 0 where padding to the next bucket costs fewer tokens, where
// nothing would remain of the last row, or above the last bucket, where steps are not padded.
int64_t tokens_above_bucket(int64_t size, int64_t last_row, const std::vector<int64_t>& buckets) {
  const auto next = std::lower_bound(buckets.begin(), buckets.end(), size);
  if (next == buckets.begin() || next == buckets.end() || *next == size) return 0;
  const int64_t above = size - *std::prev(next);
  return above < last_row && above < *next - size ? above : 0;
}

}  // namespace

int64_t Plan::num_tokens() const {
  int64_t sum = 0;
  for (const ScheduledTokens& row : rows)
    sum += row.num_tokens();
  return sum;
}

int64_t Plan::num_drafts() const {
  int64_t most = 0;
  for (const ScheduledTokens& row : rows)
    most = std::max(most, row.drafts);
  return most;
}

std::optional<int> Plan::uniform_q(int64_t max_q) const {
  if (rows.empty() || rows[0].count > max_q) return std::nullopt;
  const bool uniform = std::all_of(rows.begin(), rows.end(), [&](const ScheduledTokens& row) {
    return row.count == rows[0].count && row.drafts == rows[0].drafts;
  });
  return uniform ? std::optional(static_cast<int>(rows[0].num_tokens())) : std::nullopt;
}

int64_t Plan::prompt_tokens(int64_t max_q) const {
  int64_t sum = 0;
  for (const ScheduledTokens& row : rows)
    sum += row.count > max_q ? row.count : 0;
  return sum;
}

bool Plan::continues(const Plan& before) const {
  return !has_given_tokens && uniform_q(1) &&
         std::ranges::equal(
             rows, before.rows, [](const ScheduledTokens& now, const ScheduledTokens& then) {
               return then.count == 1 &&
                      now == ScheduledTokens{then.sequence, then.end(), 1, then.drafts};
             });
}

void Plan::move_on(SequenceId sequence, int64_t count) {
  for (ScheduledTokens& row : rows)
    row.first += row.sequence == sequence ? count : 0;
}

PromptRoom prompt_room(int64_t generating, const SchedulerLimits& limits,
                       std::optional<int64_t> max_prompt_tokens) {
  const int64_t max_tokens = limits.max_num_tokens;
  int64_t tokens = std::min(max_tokens, limits.max_mixed_tokens.value_or(max_tokens)) - generating;
  if (generating > 0 && max_prompt_tokens)
    tokens = std::min(tokens, std::max<int64_t>(1, *max_prompt_tokens));
  const auto share = static_cast<int64_t>(static_cast<double>(tokens) * limits.prompt_share);
  return {tokens, std::max<int64_t>(1, share)};
}

Plan cut_to_fit(Plan wanted, const SchedulerLimits& limits,
                std::optional<int64_t> max_prompt_tokens) {
  int64_t generating = 0;  // tokens of sequences that generate
  for (const ScheduledTokens& row : wanted.rows)
    generating += generates(row, limits) ? row.num_tokens() : 0;
  const int64_t max_mixed = generating + prompt_room(generating, limits, max_prompt_tokens).tokens;
  if (wanted.num_tokens() <= max_mixed) return wanted;
  Plan cut = first_tokens(wanted, limits.max_num_tokens);
  if (cut.uniform_q(limits.max_q)) return cut;
  if (cut.num_tokens() > max_mixed && generating >= max_mixed) {
    for (ScheduledTokens& row : wanted.rows) {
      row.count = 1;
      row.drafts = 0;
    }
    return wanted;
  }
  cut = first_tokens(wanted, max_mixed);
  ScheduledTokens& last = cut.rows.back();
  if (last.count < wanted.rows[cut.rows.size() - 1].count) {
    last.count -= tokens_above_bucket(cut.num_tokens(), last.count, limits.token_buckets);
  }
  return cut;
}

}  // namespace encore::sched
