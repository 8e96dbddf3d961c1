// The loop: it plans a step, launches it, and collects the tokens of one that was launched before. When each of
// these is done is decided here; how it is done is the matter of a StepDevice.
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

// A launch whose steps have not been collected, or not all, as far as the loop must know it. A device
// derives its own form from it, which has a `launched_at` of the device's clock besides.
struct LaunchedStep {
  Plan plan;                   // of its first step
  bool is_burst = false;       // it repeats the step, and nothing is launched behind it
  bool is_masked = false;      // it chooses tokens that grammars have a say in
  bool is_end_missed = false;  // it had ended by the time the next one was launched
};

// Runs the steps of a StepLoop: the executor of an engine does, the cost of a simulation, and the fake device of
// tests.
template <class Step>
class StepDevice {
 public:
  virtual ~StepDevice() = default;

  // Launches `step.plan`, to whose sequences it may grant more pages, and fills the rest of `step`.
  // `continues`: the rows are those of the launch before it, each with the token that it samples there.
  virtual void launch(Step& step, bool continues) = 0;
  // Waits for the oldest launch, and gives sequences what it sampled, by StepLoop::published() and
  // collect_row(). Is all of it collected?
  virtual bool collect(Step& oldest) = 0;
  // The time of the host.
  [[nodiscard]] virtual decltype(Step::launched_at) now() const = 0;
  // May the host launch a step before it has the tokens of the one before it?
  [[nodiscard]] virtual bool overlaps() const = 0;

  // Are the inputs of steps as the last launch left them, so that a plan which continues it needs none?
  [[nodiscard]] virtual bool can_continue(const Plan& /*plan*/) const { return true; }
  // Launches the rest of a masked step. The tokens of all steps before it are collected.
  virtual void finish(Step& /*step*/) {}
};

// Launches a step ahead of the tokens of the one before it where the device overlaps with the host. A step
// whose rows have drafts is collected before the next is launched, unless that one continues it: only then does the
// host know how far those rows are.
// Threads: one. Lifetime: refers to scheduler and device.
template <class Step>
class StepLoop {
 public:
  using Time = decltype(Step::launched_at);

  // `target_step_ms`: of steps in which prompts run beside sequences that generate (PromptBudget).
  StepLoop(Scheduler& scheduler, StepDevice<Step>& device, std::optional<double> target_step_ms)
      : scheduler_(scheduler), device_(device) {
    if (target_step_ms) budget_.emplace(*target_step_ms, scheduler.limits().max_num_tokens);
  }

  // Launches the next step and collects the one that is due, if any: with overlap, that of the call before;
  // of a burst, its steps since the last look. False where nothing is in flight behind the launch.
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
  // Collects the oldest launch, or the steps of a burst since the last look. Is all of it collected?
  // REQUIRES: a step is in flight.
  bool collect() {
    const bool is_done = device_.collect(in_flight_.front());
    if (is_done) in_flight_.pop_front();
    return is_done;
  }

  // The step whose end the next launch had better wait for, almost, so that requests which come until then take part.
  // Null where it had better not wait.
  [[nodiscard]] const Step* awaited() const {
    const bool waits = device_.overlaps() && scheduler_.has_room() && in_flight_.size() == 1 &&
                       !in_flight_.front().is_burst;
    return waits ? &in_flight_.front() : nullptr;
  }
  // The launches that are not collected, oldest first; a burst comes last.
  [[nodiscard]] const std::deque<Step>& in_flight() const { return in_flight_; }
  // REQUIRES: a step is in flight.
  [[nodiscard]] Step& last() { return in_flight_.back(); }
  // Tokens of prompts in the next step, at most. Absent: as many as fit.
  [[nodiscard]] std::optional<int64_t> max_prompt_tokens() const {
    return budget_ ? std::optional(budget_->tokens()) : std::nullopt;
  }

  // For devices.

  // The tokens of a single step are there by now. Returns how long it took: the device begins a step when the one before
  // it ends, or when it is launched. That is not known where its end was missed. Units: milliseconds
  double published(const Step& step) {
    const Time now = device_.now();
    const std::chrono::duration<double, std::milli> took =
        now - std::max(step.launched_at, published_at_);
    published_at_ = now;
    if (budget_ && !step.is_end_missed)
      budget_->measured(step.plan, scheduler_.limits().max_q, took.count());
    return took.count();
  }
  // `row` of the oldest launch sampled these tokens: one, and one more for each draft that was right, so later rows of
  // the sequence begin behind them. Are those the next tokens of the sequence?
  bool collect_row(const ScheduledTokens& row, Sequence& sequence,
                   std::span<const int32_t> sampled) {
    if (const int64_t num_right = std::ssize(sampled) - 1; num_right > 0) {
      // A burst's further steps begin farther, too.
      for (size_t i = in_flight_.front().is_burst ? 0 : 1; i < in_flight_.size(); ++i)
        in_flight_[i].plan.move_on(row.sequence, num_right);
      launched_.move_on(row.sequence, num_right);
    }
    return sequence.collect(row, sampled);
  }
  // The token that steps in flight choose for a sequence does not count: a later step computes the
  // position before it once more, and chooses.
  void sample_again(Sequence& sequence) {
    sequence.sample_again();
    for (Step& step : in_flight_) {
      for (ScheduledTokens& row : step.plan.rows)
        row.sequence = row.sequence == sequence.id ? 0 : row.sequence;
    }
  }
  // The last launch was a burst of so many steps.
  void end_burst(int64_t num_steps) {
    for (ScheduledTokens& row : launched_.rows)
      row.first += num_steps - 1;
  }

 private:
  // False where there is nothing to launch, or a burst must end first.
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

  // Are the rows of `plan` those of the last launch, each with the token that it sampled last, and
  // as many drafts?
  [[nodiscard]] bool continues(const Plan& plan) const {
    return plan.continues(launched_) && device_.can_continue(plan);
  }

  Scheduler& scheduler_;
  StepDevice<Step>& device_;
  std::optional<PromptBudget> budget_;
  std::deque<Step> in_flight_;
  Plan launched_;        // the last
  Time published_at_{};  // the last step, as far as it was measured
};

}  // namespace encore::sched
