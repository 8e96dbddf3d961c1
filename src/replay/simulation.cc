#include "replay/simulation.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>

#include "backend/advance.h"
#include "base/error.h"
#include "engine/prompt_budget.h"
#include "kv/prefix_cache.h"
#include "runtime/step_waiter.h"
#include "sched/scheduler.h"

namespace encore::replay {
namespace {

using sched::ScheduledTokens;

// Every sampled token of the simulation. Prompts alone decide what sequences share, and a real
// model gives equal prompts equal tokens too.
constexpr int32_t kSampled = 0;

// No drafts are simulated.
sched::SchedulerLimits scheduler_limits(const SimulationOptions& options) {
  runtime::Limits limits = options.limits;
  limits.num_drafts = 0;
  return engine::scheduler_limits(limits, options.coverage.tokens, options.engine);
}

// One run, step by step as Engine::step() goes.
class Simulation {
 public:
  Simulation(std::span<const Request> requests, const SimulationOptions& options,
             const StepCost& cost)
      : requests_(requests),
        options_(options),
        cost_(cost),
        pool_(options.num_pages, options.page_size),
        overlaps_(options.engine.overlap.value_or(true)),
        cache_(options.engine.prefix_cache
                   ? std::make_unique<kv::PrefixCache>(pool_, *options.engine.prefix_cache)
                   : nullptr),
        scheduler_(pool_, scheduler_limits(options), cache_.get()) {
    if (options.engine.target_step_ms)
      prompt_budget_.emplace(*options.engine.target_step_ms, options.limits.max_num_tokens);
    record_.decode.emplace();
    record_.mixed.emplace();
    for (const Request& request : requests) {
      record_.requests.push_back({.arrival_s = request.arrival_s,
                                  .submitted_s = request.arrival_s,
                                  .input_tokens = std::ssize(request.asked.prompt),
                                  .output_tokens = request.asked.max_tokens,
                                  .deliveries = {}});
    }
  }

  ReplayRecord run() {
    while (true) {
      receive();
      if (!in_flight_.empty() && scheduler_.has_room()) {
        now_s_ = std::max(now_s_, launch_s());
        receive();
      }
      if (step()) continue;
      if (num_received_ == requests_.size()) break;
      now_s_ = std::max(now_s_, requests_[num_received_].arrival_s);
    }
    record_.wall_s = last_delivery_s_;
    record_.num_preemptions = scheduler_.num_preemptions();
    if (cache_) record_.prefix_cache = cache_->stats();
    record_.steps = counts_.all();
    return std::move(record_);
  }

 private:
  struct InFlightStep {
    sched::Plan plan;
    runtime::Choice choice;
    double launched_s = 0;
    double begin_s = 0;
    double end_s = 0;
  };

  void receive() {
    for (; num_received_ < requests_.size(); ++num_received_) {
      const Request& request = requests_[num_received_];
      if (request.arrival_s > now_s_) return;
      sched::Sequence sequence{
          .id = static_cast<sched::SequenceId>(num_received_),
          .priority = request.asked.priority,
          .tokens = request.asked.prompt,
          .max_length = std::ssize(request.asked.prompt) + request.asked.max_tokens,
      };
      if (cache_) sequence.chain = cache_->chain("", "");
      scheduler_.add(std::move(sequence));
    }
  }

  // Does what Engine::launch_time() does, where a step is in flight.
  [[nodiscard]] double launch_s() const {
    const InFlightStep& step = in_flight_.back();
    const auto duration = [](double seconds) {
      return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
    };
    const std::chrono::duration<double> lead = runtime::StepWaiter::launch_lead(
        duration(step.end_s - step.begin_s), duration(cost_.host_us * 1e-6));
    return step.end_s - lead.count();
  }

  // Simulates a step. Returns false when there was nothing to do.
  bool step() {
    const bool launched = launch();
    if (in_flight_.empty()) return false;
    const size_t may_stay = launched && overlaps_ ? 1 : 0;
    if (in_flight_.size() > may_stay) collect();
    return true;
  }

  bool launch() {
    std::optional<int64_t> max_prompt_tokens;
    if (prompt_budget_) max_prompt_tokens = prompt_budget_->tokens();
    sched::Plan plan = scheduler_.plan(max_prompt_tokens);
    if (plan.rows.empty()) return false;
    const auto num_rows = static_cast<int64_t>(plan.rows.size());
    const runtime::Choice choice = runtime::choose(
        {plan.num_tokens(), num_rows, plan.uniform_q(options_.limits.max_q)}, options_.coverage);
    StepShape shape{
        .is_decode = true, .tokens = plan.num_tokens() + choice.padding, .sequences = num_rows};
    for (const ScheduledTokens& row : plan.rows) {
      shape.is_decode &= choice.key.is_uniform() || row.count == 1;
      shape.kv_tokens += row.end();
    }
    shape.experts = cost_.experts.distinct(plan.num_tokens());
    const double seconds = cost_(shape) * 1e-6;
    now_s_ += cost_.host_us * 1e-6;
    const double begin_s = std::max(now_s_, device_free_s_);
    device_free_s_ = begin_s + seconds;
    DeviceTime& time = shape.is_decode ? *record_.decode : *record_.mixed;
    ++time.steps;
    time.seconds += seconds;
    scheduler_.commit(plan);
    in_flight_.push_back({std::move(plan), choice, now_s_, begin_s, device_free_s_});
    return true;
  }

  void collect() {
    const InFlightStep step = std::move(in_flight_.front());
    in_flight_.pop_front();
    now_s_ = std::max(now_s_, step.end_s);
    if (prompt_budget_) measure(step);
    counts_.add(step.choice);
    for (const ScheduledTokens& row : step.plan.rows) {
      sched::Sequence* const sequence = sched::Scheduler::find(row);
      // It may have ended while this step ran.
      if (sequence == nullptr || !sequence->collect(row, kSampled)) continue;
      RequestRecord& request = record_.requests[static_cast<size_t>(row.sequence)];
      request.deliveries.push_back({now_s_, 1});
      last_delivery_s_ = now_s_;
      if (!advance_op::ends(false, sequence->known(), sequence->max_length)) continue;
      request.ended = engine::EndReason::kLength;
      scheduler_.remove(row.sequence);
    }
    record_.samples.push_back({now_s_, scheduler_.num_running(), scheduler_.num_waiting()});
  }

  // Measures as Engine does: the device begins a step when the one before it ends, or when it is
  // launched.
  void measure(const InFlightStep& step) {
    const double ms = (now_s_ - std::max(step.launched_s, published_s_)) * 1e3;
    published_s_ = now_s_;
    prompt_budget_->measured(step.plan, options_.limits.max_q, ms);
  }

  std::span<const Request> requests_;
  const SimulationOptions& options_;
  const StepCost& cost_;
  kv::PagePool pool_;
  bool overlaps_;
  std::unique_ptr<kv::PrefixCache> cache_;
  sched::Scheduler scheduler_;
  std::optional<engine::PromptBudget> prompt_budget_;
  ReplayRecord record_;
  engine::StepCounts counts_;
  std::deque<InFlightStep> in_flight_;  // oldest first
  size_t num_received_ = 0;
  double now_s_ = 0;  // of the host
  double device_free_s_ = 0;
  double published_s_ = 0;
  double last_delivery_s_ = 0;
};

}  // namespace

ReplayRecord simulate(std::span<const Request> requests, const SimulationOptions& options,
                      const StepCost& cost) {
  return Simulation(requests, options, cost).run();
}

}  // namespace encore::replay
