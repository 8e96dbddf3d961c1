// Runs one program three ways: eager (launch everything), piecewise (replay the recordable
// segments and launch what lies between them, attention above all), full (replay one recording).
//
//   executor.record();                                     // once, before serving
//   executor.kv_memory().map(num_pages);                   // KV takes what is left
//   Choice choice = executor.begin(StepKey::uniform(sequences));
//   executor.inputs().host<int32_t>("ids")[0] = ...;       // fill the real rows of every input
//   executor.page_table().set(0, pages);                   // where a row's pages have changed
//   executor.run({max_query_len, max_kv_len});
//   executor.read_output(0, host, bytes);                  // waits for the step
//
// Where each sequence takes one token, a step leaves its inputs as those of the next step:
//
//   executor.run_next({1, max_kv_len + 1});                // the same rows again, nothing copied
//   executor.wait_published({step, choice});               // for tokens, not for the device
//   executor.ring().tokens(step)[row]
//
// Where the host has to see the tokens of the step before to say which may come next:
//
//   executor.run(lengths, Until::kLogits);                 // or run_next()
//   executor.token_masks().row(mask)[0] = ...;             // while the device is busy
//   executor.finish();
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/device.h"
#include "passes/program.h"
#include "runtime/addresses.h"
#include "runtime/dispatch.h"
#include "runtime/kv_memory.h"
#include "runtime/limits.h"
#include "runtime/memory_plan.h"
#include "runtime/on_demand.h"
#include "runtime/page_table.h"
#include "runtime/policy.h"
#include "runtime/recordings.h"
#include "runtime/step_inputs.h"
#include "runtime/step_waiter.h"
#include "runtime/tables.h"
#include "runtime/token_masks.h"
#include "runtime/token_ring.h"
#include "runtime/token_state.h"

namespace encore::runtime {

// What padding rows, and all intermediate memory before each step, are filled with: shows whether
// they leak.
enum class Poison : uint8_t { kNone, kNaN, kLarge };

class Executor;

struct ExecutorOptions {
  Limits limits;
  Graphs graphs = Graphs::kAuto;
  bool record_all_modes = false;  // whatever `graphs` says, so that modes can be compared
  Ladder sequences;               // empty: Ladder::sequences(max_batch_size)
  Ladder tokens;                  // empty: Ladder::tokens(max_num_tokens)
  bool pad_uniform = true;        // off: uniform steps are replayed at exact sizes only
  Poison poison = Poison::kNone;
  bool check_addresses = false;  // before each replay: does everything lie where it was recorded?
  RecordingErrors recording_errors = RecordingErrors::kStop;
  RecordOrder record_order = RecordOrder::kDescending;
  EagerSteps eager_steps = EagerSteps::kAllow;
  bool bursts = false;  // also record bursts of every full step of one token per sequence
};

// How much of a step to enqueue.
enum class Until : uint8_t { kEnd, kLogits };

// A launched step whose tokens the host wants.
struct AwaitedStep {
  StepNumber number = 0;
  Choice choice;               // the step's, not that of one begun since: how long such steps take
  int64_t num_steps = 1;       // since the one awaited before
  bool is_last = false;        // none is launched behind it
  const Event* end = nullptr;  // behind the work that should publish it; null: it will
};

// Lifetime: refers to the device and the program. Threads: one.
class Executor {
 public:
  // `weights` by ValueId::index of the program's graph; the caller owns their memory.
  // Errors: kMemory, kUnsupported, kCompile.
  Executor(Device& device, const passes::Program& program, std::vector<TensorView> weights,
           const ExecutorOptions& options);

  // Lowers, warms up and records every bucket, largest first: in full (--graphs auto and full), or
  // in pieces (piecewise, or where a launch cannot be in a full recording).
  // --graphs none leaves out the recording only, so that every mode runs the same kernels and
  // leaves KV the same memory. Steps above the ladders are lowered and warm at some sizes.
  // Errors: as the device's, naming op, segment and size.
  const RecordingStats& record();

  // Chooses the way, fixes the padded sizes, and readies the host twin for writing.
  Choice begin(const StepKey& step);
  // What begin() chose last.
  [[nodiscard]] const Choice& choice() const { return choice_; }
  [[nodiscard]] StepInputs& inputs() { return inputs_; }
  // What has changed in these is written in front of the next launch of steps.
  [[nodiscard]] PageTable& page_table() { return page_table_; }
  [[nodiscard]] TokenState& token_state() { return token_state_; }
  [[nodiscard]] TokenMasks& token_masks() { return token_masks_; }
  // Copies the inputs and enqueues the step, or all of it that needs no token masks.
  void run(const StepLengths& lengths, Until until = Until::kEnd);
  // Enqueues the next step of the same rows, on the inputs that the last one left.
  // REQUIRES: the last launch was of one token per sequence, and nothing has begun since.
  void run_next(const StepLengths& lengths, Until until = Until::kEnd);
  // Enqueues the rest of a step that ran until its logits. Nothing else may run in between.
  void finish();
  // As run() and run_next(), but one launch for as many steps of the same rows as it takes for
  // `end` to be the next, a few more, or fewer when all rows end. Nothing else may be launched
  // until it has run and end_burst() was called. REQUIRES: has_burst().
  void run_burst(StepNumber end);
  void run_next_burst(StepNumber end);
  // Once the burst has run: what it published is what counts.
  void end_burst();
  [[nodiscard]] bool has_burst() const;

  // What the step launched next is called.
  [[nodiscard]] StepNumber next_step() const { return next_step_; }
  [[nodiscard]] TokenRing& ring() { return ring_; }
  // Waits until the step's tokens are in the ring, or the work before its `end` has run without it.
  // Returns the first step that is not published. Errors: kDevice when work failed instead.
  StepNumber wait_published(const AwaitedStep& step);
  // How many steps like that one are published in `time`, as far as is known: 1 at least.
  [[nodiscard]] int64_t steps_in(const Choice& choice, StepWaiter::Clock::duration time) const {
    return waiter_.steps_in(choice.key.tokens, time);
  }
  // The first `count` launches of the step that begin() readied, run as `mode` runs; what
  // `mode` replays and was not recorded by itself is recorded for this call. Waits. How `encore
  // bisect` finds where two modes part.
  void run_prefix(const StepLengths& lengths, Mode mode, size_t count);
  // Fills all intermediate memory, so that nothing is there that an earlier step left.
  void poison(Poison poison);
  // Elements of a value that the step made, dense. Waits.
  [[nodiscard]] std::vector<std::byte> read_value(ir::ValueId value);
  // Where graph output `index` lies, at the largest step's size: valid until the next step begins.
  [[nodiscard]] TensorView output(int index) const {
    return addresses_.view(program_.graph.outputs()[index], program_.max_sizes);
  }
  // Waits for the step and copies `bytes` of graph output `index` to the host.
  void read_output(int index, void* host, int64_t bytes);
  void synchronize() { stream_->synchronize(); }

  // Runs the next steps this way where possible, beginning with one that is begun anew:
  // benchmarks and tests compare modes.
  void set_graphs(Graphs graphs) {
    coverage_.graphs = graphs;
    choice_ = {};
  }
  // Called behind the launches of each step, or of a burst, from now on, to look at what it made.
  void set_after_step(std::function<void(Executor&)> look) { after_step_ = std::move(look); }
  // The KV caches. Nothing is mapped until the caller does so, after record(): a step with real
  // rows needs the pages it names.
  [[nodiscard]] KvMemory& kv_memory() { return kv_memory_; }
  // All but the context, which was there before the executor.
  [[nodiscard]] MemoryPlan memory_plan() const {
    MemoryPlan plan = memory_plan_;
    plan.kv = kv_memory_.mapped_bytes();
    return plan;
  }
  [[nodiscard]] const Coverage& coverage() const { return coverage_; }
  [[nodiscard]] const passes::Program& program() const { return program_; }
  [[nodiscard]] Stream& stream() { return *stream_; }
  [[nodiscard]] Device& device() { return device_; }

  // What each segment launches, lowered when it is first asked for.
  [[nodiscard]] Tables& tables() { return tables_; }
  [[nodiscard]] const Recordings& recordings() const { return recordings_; }

 private:
  [[nodiscard]] Workspace largest_workspace() const;
  // Lowers every segment.
  void lower_size(const StepKey& step);
  // What to record, once all shapes are lowered. Errors: kUsage.
  void plan_recordings(const std::vector<StepKey>& mixed);
  // Launches each kernel once for each shape of its operands, on padding rows only: what a device
  // sets up at a first launch (a library's code is loaded then) must not be set up in a recording.
  void warm_up(const std::vector<StepKey>& shapes);
  void record_shapes(std::vector<StepKey> shapes, bool full, bool pieces);
  // By policy, an error while recording ends the start-up, or leaves this recording out.
  void record_or_drop(const std::function<void()>& record, const std::function<void()>& drop);
  void drop_piece(int segment, const StepKey& step);
  // Of mixed steps that auto would replay in pieces: finds, or remembers, those that pieces slow.
  void weigh_pieces(const std::vector<StepKey>& mixed);
  // Records a full step of an lru ladder. Where that fails, its steps run eager from now on.
  void record_on_demand(const StepKey& step);
  // Inputs of a step without real rows.
  void copy_padding(const StepKey& step);
  // As it would be replayed; nothing where it would not.
  void run_on_padding(const StepKey& step);
  void enqueue(const Step& step, Mode mode, StepPart part = StepPart::kWhole);
  // Can the step be enqueued in halves? Where they are replayed, records them if need be.
  bool has_halves(const StepKey& step, Mode mode);
  // After launches that are not steps: the device's count is the count.
  void recount();
  void replay(const Recording& recording);
  // Errors: kCompile naming the operand that has moved.
  void check_addresses(const StepKey& step);
  void copy_inputs();
  // What the host has set since the last launch of steps.
  void write_changes();

  Device& device_;
  const passes::Program& program_;
  ExecutorOptions options_;
  std::function<void(Executor&)> after_step_;
  Coverage coverage_;
  MemoryPlan memory_plan_;
  std::unique_ptr<Stream> stream_;
  KvMemory kv_memory_;
  PersistentBuffers persistent_;
  TokenRing ring_;
  StepNumber next_step_ = 0;
  PageTable page_table_;
  TokenState token_state_;
  TokenMasks token_masks_;
  StepInputs inputs_;
  AddressMap addresses_;
  Tables tables_;
  Recordings recordings_;
  std::optional<OnDemandRecordings> on_demand_;  // of an lru ladder
  std::set<std::string> warm_;                   // signatures launched before
  Memory host_output_;
  Choice choice_;
  // Of a step that ran until its logits: what is not enqueued.
  struct Rest {
    Step step;
    StepPart part = StepPart::kWhole;
  };
  std::optional<Rest> rest_;
  StepWaiter waiter_;
};

}  // namespace encore::runtime
