// The loop: plan, launch, commit. Everything a request is beyond its counts lives here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

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

// The synchronous loop: each step's tokens are read before the next is planned.
// Threads: one. Lifetime: refers to the model, and to the step log when there is one.
class Engine {
 public:
  // A line a step goes to `step_log`, if any; measuring its times costs two events a step.
  explicit Engine(LoadedModel& model, runtime::StepLogWriter* step_log = nullptr);

  // Checks and queues a request.
  std::variant<SequenceId, Rejection> add(Request request);
  // Runs one step; false when there was nothing to do. Calls `on_token` for each new token.
  // Errors: kUsage while the model is asleep; nothing has happened then.
  bool step(const std::function<void(const Generated&)>& on_token);
  // Ends a sequence early. Unknown ids are ignored: it may just have finished.
  void abort(SequenceId id);
  // Deals KV pages out in random order from now on: how benchmarks get pages as a busy server has.
  void shuffle_pages(uint64_t seed) { pool_.shuffle(seed); }

  // Between steps: as LoadedModel's. Sequences go on where they were; they may also come and end
  // meanwhile.
  void sleep(SleepDepth depth);
  void wake() { model_.wake(); }

  [[nodiscard]] std::vector<StepCount> step_counts() const;
  // What the last step ran; its logits are output 1 of the executor, a row a run.
  [[nodiscard]] const sched::Plan& last_plan() const { return plan_; }
  [[nodiscard]] LoadedModel& model() { return model_; }

 private:
  struct Sequence {
    Request request;
    std::vector<int32_t> tokens;  // prompt and generated
    int64_t num_generated = 0;
  };

  void pack();
  void commit(const std::function<void(const Generated&)>& on_token);
  void count(const runtime::Choice& choice);
  void log(const runtime::Choice& choice, double host_us);

  LoadedModel& model_;
  runtime::StepLogWriter* step_log_;
  std::unique_ptr<Event> launch_began_;  // with a step log only
  std::unique_ptr<Event> launch_ended_;
  kv::PagePool pool_;
  sched::Scheduler scheduler_;
  sched::Plan plan_;  // of the current step
  std::map<SequenceId, Sequence> sequences_;
  SequenceId next_id_ = 1;
  std::map<std::tuple<runtime::Mode, int64_t, int64_t, int, runtime::Reason>, StepCount> counts_;
};

}  // namespace encore::engine
