#include "traffic/simulation.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "backend/advance.h"
#include "base/error.h"
#include "kv/prefix_cache.h"
#include "runtime/step_waiter.h"
#include "sched/scheduler.h"
#include "sched/step_loop.h"

namespace encore::traffic {
namespace {

using sched::ScheduledTokens;

// The token that every simulated step samples. One token is enough: only prompts decide what
// sequences share, and a real model also gives equal prompts equal tokens.
constexpr int32_t kSampled = 0;

// Returns the scheduler's limits without drafts, which are not simulated.
sched::SchedulerLimits scheduler_limits(const SimulationOptions& options) {
  runtime::Limits limits = options.limits;
  limits.num_drafts = 0;
  return engine::scheduler_limits(limits, options.coverage.tokens, options.engine);
}

// A clock of the time since the simulated run began.
struct SimulatedClock {
  using duration = std::chrono::duration<double>;
  using time_point = std::chrono::time_point<SimulatedClock, duration>;
};

struct SimulatedStep : sched::LaunchedStep {
  runtime::Choice choice;
  SimulatedClock::time_point launched_at;
  double begin_s = 0;
  double end_s = 0;
};

// One run of the simulation: the engine's loop with a StepCost in place of the executor.
class Simulation : private sched::StepDevice<SimulatedStep> {
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
        window_(options.window_rule
                    ? std::make_unique<kv::WindowGroup>(options.num_window_pages,
                                                        *options.window_rule, cache_ != nullptr)
                    : nullptr),
        scheduler_(pool_, scheduler_limits(options), cache_.get(), nullptr, window_.get()),
        loop_(scheduler_, *this, options.engine.target_step_ms) {
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

  TrafficRecord run() {
    while (true) {
      receive();
      if (const SimulatedStep* const step = loop_.awaited()) {
        now_s_ = std::max(now_s_, launch_s(*step));
        receive();
      }
      if (loop_.step()) continue;
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

  // Returns when the next step is planned, by the rule of Engine::launch_time().
  [[nodiscard]] double launch_s(const SimulatedStep& step) const {
    const auto duration = [](double seconds) {
      return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
    };
    const std::chrono::duration<double> lead = runtime::StepWaiter::launch_lead(
        duration(step.end_s - step.begin_s), duration(cost_.host_us * 1e-6));
    return step.end_s - lead.count();
  }

  void launch(SimulatedStep& step, bool /*continues*/) override {
    const sched::Plan& plan = step.plan;
    const auto num_rows = static_cast<int64_t>(plan.rows.size());
    step.choice = runtime::choose(
        {plan.num_tokens(), num_rows, plan.uniform_q(options_.limits.max_q)}, options_.coverage);
    StepShape shape{.is_decode = true,
                    .tokens = plan.num_tokens() + step.choice.padding,
                    .sequences = num_rows};
    for (const ScheduledTokens& row : plan.rows) {
      shape.is_decode &= step.choice.key.is_uniform() || row.count == 1;
      shape.kv_tokens += row.end();
    }
    shape.experts = cost_.experts.distinct(plan.num_tokens());
    const double seconds = cost_(shape) * 1e-6;
    now_s_ += cost_.host_us * 1e-6;
    if (!loop_.in_flight().empty()) loop_.last().is_end_missed = loop_.last().end_s < now_s_;
    step.launched_at = now();
    step.begin_s = std::max(now_s_, device_free_s_);
    step.end_s = step.begin_s + seconds;
    device_free_s_ = step.end_s;
    DeviceTime& time = shape.is_decode ? *record_.decode : *record_.mixed;
    ++time.steps;
    time.seconds += seconds;
  }

  bool collect(SimulatedStep& step) override {
    now_s_ = std::max(now_s_, step.end_s);
    loop_.published(step);
    counts_.add(step.choice);
    for (const ScheduledTokens& row : step.plan.rows) {
      sched::Sequence* const sequence = sched::Scheduler::find(row);
      // A sequence that ended while this step ran has no use for the step's token, so its row is
      // skipped.
      if (sequence == nullptr || !loop_.collect_row(row, *sequence, {&kSampled, 1})) continue;
      RequestRecord& request = record_.requests[static_cast<size_t>(row.sequence)];
      request.deliveries.push_back({now_s_, 1});
      last_delivery_s_ = now_s_;
      if (!advance_op::ends(false, sequence->known(), sequence->max_length)) continue;
      request.ended = engine::EndReason::kLength;
      scheduler_.remove(row.sequence);
    }
    record_.samples.push_back({now_s_, scheduler_.num_running(), scheduler_.num_waiting()});
    return true;
  }

  [[nodiscard]] SimulatedClock::time_point now() const override {
    return SimulatedClock::time_point(SimulatedClock::duration(now_s_));
  }
  [[nodiscard]] bool overlaps() const override { return overlaps_; }

  std::span<const Request> requests_;
  const SimulationOptions& options_;
  const StepCost& cost_;
  kv::PagePool pool_;
  bool overlaps_;
  std::unique_ptr<kv::PrefixCache> cache_;
  std::unique_ptr<kv::WindowGroup> window_;
  sched::Scheduler scheduler_;
  sched::StepLoop<SimulatedStep> loop_;
  TrafficRecord record_;
  engine::StepCounts counts_;
  size_t num_received_ = 0;
  double now_s_ = 0;  // the host's time
  double device_free_s_ = 0;
  double last_delivery_s_ = 0;
};

}  // namespace

TrafficRecord simulate(std::span<const Request> requests, const SimulationOptions& options,
                       const StepCost& cost) {
  return Simulation(requests, options, cost).run();
}

}  // namespace encore::traffic
