// The loop: plan, launch, land. Everything a request is beyond its counts lives here.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <boost/container/flat_map.hpp>

#include "engine/loaded_model.h"
#include "kv/page_pool.h"
#include "runtime/step_log.h"
#include "sample/params.h"
#include "sched/scheduler.h"

namespace encore::engine {

using sched::SequenceId;

struct Request {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 128;  // to generate at most
  sample::SamplingParams sampling;
  std::vector<int32_t> stop_tokens;  // any of them ends the sequence; it is still reported
};

enum class Finish : uint8_t { kLength, kStop };
std::string_view name(Finish finish);

// One token of one sequence, as soon as it is known.
struct Generated {
  SequenceId sequence = 0;
  int32_t token = 0;
  std::optional<Finish> finish;  // set on the last
};

// Why a request was not taken; a value, for the caller to pass on.
struct Rejection {
  std::string why;
};

// Steps by how they were walked.
struct StepCount {
  runtime::Mode mode = runtime::Mode::kEager;
  ir::Sizes bucket;
  int q = 0;
  runtime::Reason reason = runtime::Reason::kNone;
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t padding = 0;
};

struct EngineOptions {
  // Gets a line a step; measuring its times costs two events a step.
  runtime::StepLogWriter* step_log = nullptr;
  // Launch a step before the tokens of the one before it are read, so that the device never waits
  // for the host. Absent: where the device runs beside the host.
  std::optional<bool> overlap;
  // Where sequences only decode, launch them in bursts, which run up to so many steps ahead of what
  // the host has read; needs ExecutorOptions::bursts. The host looks at a burst every 25 ms, or
  // every few steps: a quarter of these at most.
  int64_t burst_steps = 1;
};

// The loop, with one step in flight while the host works, or with none: each step's tokens are read
// before the next is planned then. A sequence gets the same tokens either way; one that ends at a
// stop token takes part in one more step, whose token for it nobody reads.
// Threads: one. Lifetime: refers to the model, and to the step log when there is one.
class Engine {
 public:
  explicit Engine(LoadedModel& model, const EngineOptions& options = {});
  // Waits for the end of a burst.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Checks and queues a request.
  std::variant<SequenceId, Rejection> add(Request request);
  // Launches the next step and reads the tokens of the one that is due, if any: with overlap, that
  // of the call before. Of a burst, the tokens of all steps since the last look. Calls `on_token`
  // for each; it may add and abort. False when there was nothing to do.
  // Errors: kUsage while the model is asleep; nothing has happened then.
  bool step(const std::function<void(const Generated&)>& on_token);
  // Ends a sequence early. Unknown ids are ignored: it may just have finished.
  void abort(SequenceId id);
  // Deals KV pages out in random order from now on: how benchmarks get pages as a busy server has.
  void shuffle_pages(uint64_t seed) { pool_.shuffle(seed); }

  // Between steps: as LoadedModel's. Sequences go on where they were; they may also come and end
  // meanwhile. Tokens of steps in flight are kept for the next step().
  void sleep(SleepDepth depth);
  void wake() { model_.wake(); }

  [[nodiscard]] std::vector<StepCount> step_counts() const;
  // What the last step whose tokens were read ran. Without overlap, its logits are output 1 of the
  // executor, a row a run.
  [[nodiscard]] const sched::Plan& last_plan() const { return plan_; }
  [[nodiscard]] LoadedModel& model() { return model_; }

 private:
  struct Sequence {
    // What each step touches comes first.
    int64_t num_tokens = 0;  // of the prompt and generated, those under way left out
    int64_t max_tokens = 0;
    int32_t last_token = 0;  // generated; earlier ones are in the KV cache alone
    int32_t row = 0;         // in the step launched last
    std::vector<int32_t> stop_tokens;
    sample::SamplingParams sampling;
    std::vector<int32_t> prompt;
  };
  // A launch whose tokens have not been read, or not all.
  struct Flight {
    sched::Plan plan;  // of its first step
    runtime::Choice choice;
    runtime::StepNumber first = 0;
    int64_t num_read = 0;          // steps
    double host_us = 0;            // to launch it
    std::unique_ptr<Event> began;  // with a step log only
    std::unique_ptr<Event> ended;  // with a step log, and of a burst
    bool is_burst = false;
    bool is_interrupted = false;
  };

  // False when there is nothing to launch, or a burst must end first.
  bool launch();
  // Are the rows of `plan` those of the last launch, each one token further?
  [[nodiscard]] bool proceeds(const sched::Plan& plan) const;
  // Writes the inputs of `plan`.
  void pack(const sched::Plan& plan);
  [[nodiscard]] bool may_burst(const sched::Plan& plan) const;
  // How many steps it may run ahead of the host, how far it may run by now, and how many steps the
  // host waits for at once.
  [[nodiscard]] int64_t steps_ahead() const;
  [[nodiscard]] runtime::StepNumber burst_end(const Flight& burst) const;
  [[nodiscard]] int64_t steps_per_look(const Flight& burst) const;
  // Reads the oldest launch; its tokens are undelivered then.
  void land();
  void land_burst();
  void interrupt_burst();
  // Of the oldest launch, the next step that is published.
  void read_step();
  void end(SequenceId id);
  void count(const runtime::Choice& choice);
  void log(const Flight& flight);

  LoadedModel& model_;
  EngineOptions options_;
  bool overlaps_;
  kv::PagePool pool_;
  sched::Scheduler scheduler_;
  std::deque<Flight> flights_;  // oldest first; a burst comes last
  std::deque<Generated> undelivered_;
  sched::Plan plan_;  // of the last step read
  // The last step launched, and the number of the one after it: unless somebody else launched.
  sched::Plan launched_;
  runtime::StepNumber after_launched_ = 0;
  boost::container::flat_map<SequenceId, Sequence> sequences_;
  SequenceId next_id_ = 1;
  std::map<std::tuple<runtime::Mode, int64_t, int64_t, int, runtime::Reason>, StepCount> counts_;
};

}  // namespace encore::engine
