// Implements bursts. A burst is one launch that runs as many steps as its sequences take.
#include <algorithm>
#include <limits>
#include <utility>

#include "engine/engine.h"

namespace encore::engine {
namespace {

// The longest time that the tokens of a burst lie unread. It is short enough for a user who reads
// along.
constexpr auto kBetweenLooks = std::chrono::milliseconds(25);

}  // namespace

int64_t Engine::grant_burst(sched::Plan& plan) {
  constexpr int64_t kAtOnce = 256;
  constexpr int64_t kOvershoot = runtime::Recordings::kStepsPerIteration - 1;
  if (options_.burst_steps <= 1 || scheduler_.num_waiting() > 0 || !plan.uniform_q(1)) return 0;
  // Each step of the burst gives every sequence at least one token and at most `each`. Each draft
  // of the steps in flight may turn out right, and then the burst begins one position later, so the
  // burst may begin up to `before_burst` positions later.
  const int64_t drafts = plan.num_drafts();
  const int64_t each = 1 + drafts;
  const int64_t before_burst = drafts * std::ssize(loop_.in_flight());
  int64_t wanted = 0;  // most steps that a sequence may still take
  int64_t granted = std::numeric_limits<int32_t>::max();
  // Is true where, for all sequences of the plan, the device knows all stop tokens, the host knows
  // no token behind the row, and there is no grammar.
  bool is_free = true;
  scheduler_.for_each(plan, [&](const sched::ScheduledTokens& row, sched::Sequence& sequence) {
    const RequestState& request = state_of(sequence);
    is_free &= std::ssize(request.stop_tokens) <= kMaxStopTokens && row.end() >= sequence.given &&
               request.matcher == nullptr;
    const int64_t last = sequence.max_length - 1;
    wanted = std::max(wanted, last - row.first);
    const SentPages before = pages_of(sequence);
    // Drafts need pages behind the last token, too.
    const int64_t farthest = scheduler_.farthest_grant(row.end()).value_or(last + drafts);
    scheduler_.grow(sequence,
                    std::min({row.end() + each * (kAtOnce + kOvershoot), farthest, last + drafts}));
    plan.has_new_pages |= pages_of(sequence) != before;
    const int64_t end = scheduler_.granted_end(sequence);
    if (end >= last + drafts) return;
    granted = std::min(granted, (end - row.end() - drafts - before_burst) / each - kOvershoot);
  });
  if (draft_choice_) {
    granted = std::min(granted, draft_choice_->num_alike(std::ssize(plan.rows)));
  }
  const bool pays = std::min(wanted, granted) >= runtime::Recordings::kStepsPerIteration;
  return is_free && pays ? granted : 0;
}

bool Engine::collect_burst(InFlightStep& burst) {
  runtime::Executor& executor = model_.executor();
  const auto first = burst.first + static_cast<runtime::StepNumber>(burst.num_collected);
  const int64_t num_steps = steps_per_look(burst);
  const runtime::StepNumber end = executor.output().wait_published(
      {.number = first + static_cast<runtime::StepNumber>(num_steps - 1),
       .choice = burst.choice,
       .launched = burst.launched_at,
       .num_steps = num_steps,
       .end = burst.ended.get()});
  const auto start = HostTimes::Clock::now();
  measure_burst(burst, static_cast<int64_t>(end - first), start);
  for (auto step = first; runtime::is_before(step, end); ++step)
    collect_step(burst);
  host_times_.add(HostWork::kCollect, start);
  if (runtime::is_before(first, end)) {
    if (!burst.is_interrupted) executor.output().ring().run_until(burst_end(burst));
    return false;
  }
  executor.recount();
  loop_.end_burst(burst.num_collected);
  after_launched_ = executor.next_step();
  device_rests_since_ = start;
  return true;
}

// Assumes that the steps which ended between two looks of the host at a burst took equally long.
void Engine::measure_burst(InFlightStep& burst, int64_t num_steps,
                           HostTimes::Clock::time_point now) {
  if (!draft_choice_ || num_steps == 0) return;
  const std::chrono::duration<double, std::milli> took =
      now - std::max(burst.launched_at, std::exchange(burst.looked_at, now));
  for (int64_t i = 0; i < num_steps; ++i) {
    draft_choice_->add_step(std::ssize(burst.plan.rows), burst.plan.num_drafts(),
                            took.count() / static_cast<double>(num_steps));
  }
}

int64_t Engine::steps_ahead() const {
  return std::min(options_.burst_steps, model_.executor().output().ring().capacity() / 2);
}

runtime::StepNumber Engine::burst_end(const InFlightStep& burst) const {
  const int64_t steps = std::min(burst.num_collected + steps_ahead(), burst.max_burst_steps);
  return burst.first + static_cast<runtime::StepNumber>(steps);
}

// Returns how many steps of a burst to wait for: at most as many as some sequence may still take.
// If the host waited for more, it would not see that the burst ends before.
int64_t Engine::steps_per_look(const InFlightStep& burst) const {
  if (burst.is_interrupted) return 1;
  int64_t most = 0;
  for (const sched::Sequence* sequence : scheduler_.running())
    most = std::max(most, sequence->max_length - sequence->known());
  const int64_t in_time = model_.executor().output().steps_in(burst.choice, kBetweenLooks);
  return std::max<int64_t>(1, std::min({in_time, steps_ahead() / 4, most}));
}

void Engine::interrupt_burst() {
  if (loop_.in_flight().empty() || !loop_.last().is_burst) return;
  loop_.last().is_interrupted = true;
  runtime::TokenRing& ring = model_.executor().output().ring();
  ring.run_until(ring.published());
}

}  // namespace encore::engine
