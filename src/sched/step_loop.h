// The loop that plans a step, launches it, and collects the tokens of a step launched before. The
// loop decides when each of these is done, and a StepDevice does it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "sched/prompt_budget.h"
#include "sched/scheduler.h"

namespace encore::sched {

// The data that the loop keeps of a launch whose steps are not all collected. A device derives its
// own type from it, which must have a member `launched_at`, a time of the device's clock.
struct LaunchedStep {
  Plan plan;                   // plan of its first step
  bool is_burst = false;       // the launch repeats the step, and no other launch follows it
  bool is_masked = false;      // grammars limit the tokens that the step chooses
  bool is_end_missed = false;  // the step had ended before the next one was launched
};

// Runs the steps of a StepLoop. The engine implements it with an executor, a simulation with a cost
// model, and tests with a fake device.
template <class Step>
class StepDevice {
 public:
  virtual ~StepDevice() = default;

  // Launches `step.plan` and fills the rest of `step`. It may grant more pages to the plan's
  // sequences. `continues`: the rows are those of the launch before, each with the token that it
  // samples there.
  virtual void launch(Step& step, bool continues) = 0;
  // Waits for the oldest launch, and gives its sampled tokens to the sequences by
  // StepLoop::published() and collect_row(). Returns whether all steps of the launch are collected.
  virtual bool collect(Step& oldest) = 0;
  // Returns the time of the host.
  [[nodiscard]] virtual decltype(Step::launched_at) now() const = 0;
  // Returns whether the host may launch a step before it has the tokens of the step before.
  [[nodiscard]] virtual bool overlaps() const = 0;

  // Returns whether the inputs of steps are still as the last launch left them, so that a plan that
  // continues that launch needs no new inputs.
  [[nodiscard]] virtual bool can_continue(const Plan& /*plan*/) const { return true; }
  // Launches the rest of a masked step. REQUIRES: the tokens of all steps before it are collected.
  virtual void finish(Step& /*step*/) {}
};

// Runs the steps of a scheduler on a device. Where the device overlaps with the host, the loop
// launches a step before it collects the step in front. A step whose rows have drafts is collected
// before the next launch, unless that launch continues it, since the host does not know where its
// rows end before then.
// Threads: one. Lifetime: refers to scheduler and device.
template <class Step>
class StepLoop {
 public:
  using Time = decltype(Step::launched_at);

  // `target_step_ms`: the target time of steps in which prompts run beside sequences that generate
  // (PromptBudget).
  StepLoop(Scheduler& scheduler, StepDevice<Step>& device, std::optional<double> target_step_ms)
      : scheduler_(scheduler), device_(device) {
    if (target_step_ms) budget_.emplace(*target_step_ms, scheduler.limits().max_num_tokens);
  }

  // Launches the next step and collects the step that is due: with overlap, the one launched by the
  // call before. Of a burst, it collects the steps since the last look. Returns false where nothing
  // was launched and nothing is in flight.
  bool step() {
    const bool launched = launch();
    if (in_flight_.empty()) return false;
    if (launched && last().is_masked) {
      while (in_flight_.size() > 1)
        collect();
      device_.finish(last());
    }
    const size_t may_stay = launched && (device_.overlaps() || last().is_burst) ? 1 : 0;
    while (in_flight_.size() > may_stay) {
      if (!collect()) break;
    }
    return true;
  }
  // Collects the oldest launch, or the steps of a burst since the last look. Returns whether all
  // steps of that launch are collected.
  // REQUIRES: a step is in flight.
  bool collect() {
    const bool is_done = device_.collect(in_flight_.front());
    if (is_done) in_flight_.pop_front();
    return is_done;
  }

  // Returns the step in flight for which the next launch should wait until just before its end, so
  // that requests that come until then take part. Null where the next launch should not wait.
  [[nodiscard]] const Step* awaited() const {
    const bool waits = device_.overlaps() && scheduler_.has_room() && in_flight_.size() == 1 &&
                       !in_flight_.front().is_burst;
    return waits ? &in_flight_.front() : nullptr;
  }
  // Returns the launches that are not wholly collected, oldest first. A burst comes last.
  [[nodiscard]] const std::deque<Step>& in_flight() const { return in_flight_; }
  // Returns the last launch in flight. REQUIRES: a step is in flight.
  [[nodiscard]] Step& last() { return in_flight_.back(); }
  // Returns the most prompt tokens that the next step may have. Absent: as many as fit.
  [[nodiscard]] std::optional<int64_t> max_prompt_tokens() const {
    return budget_ ? std::optional(budget_->tokens()) : std::nullopt;
  }

  // The functions below are called by devices.

  // Notes that the host has the tokens of a single step by now. Returns how long the step took,
  // from the end of the step before it or from its launch, whichever is later. The result is not
  // exact where the step's end was missed (LaunchedStep::is_end_missed). Units: milliseconds
  double published(const Step& step) {
    const Time now = device_.now();
    const std::chrono::duration<double, std::milli> took =
        now - std::max(step.launched_at, published_at_);
    published_at_ = now;
    if (budget_ && !step.is_end_missed)
      budget_->measured(step.plan, scheduler_.limits().max_q, took.count());
    return took.count();
  }
  // Notes that `row` of the oldest launch sampled these tokens: one, and one more for each draft
  // that was right. Later rows of the sequence move behind them. Returns whether these are the next
  // tokens of the sequence.
  bool collect_row(const ScheduledTokens& row, Sequence& sequence,
                   std::span<const int32_t> sampled) {
    if (const int64_t num_right = std::ssize(sampled) - 1; num_right > 0) {
      // The steps of a burst that are not collected yet begin farther, too.
      for (size_t i = in_flight_.front().is_burst ? 0 : 1; i < in_flight_.size(); ++i)
        in_flight_[i].plan.move_on(row.sequence, num_right);
      launched_.move_on(row.sequence, num_right);
    }
    return sequence.collect(row, sampled);
  }
  // Makes a later step compute the sequence's last known position once more and choose the token
  // behind it. The token that steps in flight choose for the sequence does not count.
  void sample_again(Sequence& sequence) {
    sequence.sample_again();
    for (Step& step : in_flight_) {
      for (ScheduledTokens& row : step.plan.rows)
        row.sequence = row.sequence == sequence.id ? 0 : row.sequence;
    }
  }
  // Notes that the last launch was a burst of `num_steps` steps.
  void end_burst(int64_t num_steps) {
    for (ScheduledTokens& row : launched_.rows)
      row.first += num_steps - 1;
  }

 private:
  // Launches the next step. Returns false where there is none, or where a burst must end first.
  bool launch() {
    if (!in_flight_.empty() && last().is_burst) return false;
    Step step;
    step.plan = plan_next();
    if (step.plan.rows.empty()) return false;
    device_.launch(step, continues(step.plan));
    scheduler_.commit(step.plan);
    launched_ = step.plan;
    in_flight_.push_back(std::move(step));
    return true;
  }

  Plan plan_next() {
    bool has_new_pages = false;
    while (true) {
      Plan plan = scheduler_.plan(max_prompt_tokens());
      Scheduler::keep_rows(plan);
      plan.has_new_pages |= has_new_pages;
      const bool is_known =
          in_flight_.empty() || in_flight_.back().plan.num_drafts() == 0 || continues(plan);
      if (is_known || plan.rows.empty()) return plan;
      has_new_pages = plan.has_new_pages;
      collect();
    }
  }

  // Returns whether the rows of `plan` are those of the last launch, each with the token that it
  // sampled last and with as many drafts, and the device's inputs are still as that launch left
  // them.
  [[nodiscard]] bool continues(const Plan& plan) const {
    return plan.continues(launched_) && device_.can_continue(plan);
  }

  Scheduler& scheduler_;
  StepDevice<Step>& device_;
  std::optional<PromptBudget> budget_;
  std::deque<Step> in_flight_;
  Plan launched_;        // plan of the last launch
  Time published_at_{};  // when the last step was seen to be published
};

}  // namespace encore::sched
