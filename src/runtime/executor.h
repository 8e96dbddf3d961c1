// Runs a program's steps in one of three ways: eager (launch everything), piecewise (replay the
// recordable segments and launch what lies between them, attention above all), full (replay one
// recording).
//
//   Executor executor(device, stream, program, weights, options);  // records
//   executor.loaded().kv.map({num_pages});                 // KV takes what is left
//   Choice choice = executor.begin(StepKey::uniform(sequences));
//   StepInputs& inputs = executor.loaded().inputs;
//   inputs.host(step_input::kIds)[0] = ...;                // fill the real rows of every input
//   inputs.page_table().set(0, pages);                     // where a row's pages have changed
//   executor.run({max_query_len, max_kv_len});
//   executor.output().wait_published({step, choice});      // for tokens, not for the device
//   executor.output().ring().tokens(step)[row]
//
// Where each sequence takes one token, a step leaves its inputs as those of the next step:
//
//   executor.run({1, max_kv_len + 1}, InputsFrom::kLastStep);  // the same rows again, nothing copied
//
// Where the host has to see the tokens of the step before to say which may come next:
//
//   executor.run(lengths, InputsFrom::kHost, StepPart::kToLogits);
//   executor.token_mask(row)[0] = ...;                     // while the device is busy
//   executor.finish();
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/followers.h"
#include "runtime/limits.h"
#include "runtime/loaded_program.h"
#include "runtime/on_demand.h"
#include "runtime/rank_tokens.h"
#include "runtime/step_output.h"
#include "runtime/token_state.h"

namespace encore::runtime {

// The size that is recorded first (--record-order). The same sizes are recorded in either order.
enum class RecordOrder : uint8_t { kDescending, kAscending };

// The points of the start-up at which the ranks of a model wait for each other: all kernels are chosen, their
// code is loaded, whole steps have run, all is recorded. Behind the second and the last, whole steps run,
// and with them collectives, in which no rank may wait for long.
enum class StartPoint : uint8_t { kLowered, kLoaded, kWarm, kRecorded };
// "the recordings": what follows the point.
std::string_view name(StartPoint point);

struct ExecutorOptions {
  Limits limits;
  Graphs graphs = Graphs::kAuto;
  bool record_all_modes = false;  // whatever `graphs` says, so that modes can be compared
  Ladder sequences;               // empty: Ladder::sequences(max_batch_size)
  Ladder tokens;                  // empty: Ladder::tokens(max_num_tokens)
  bool pad_uniform = true;        // off: uniform steps are replayed at exact sizes only
  RecordingErrors recording_errors = RecordingErrors::kStop;
  RecordOrder record_order = RecordOrder::kDescending;
  EagerSteps eager_steps = EagerSteps::kAllow;
  bool bursts = false;  // also record bursts of every full step of one token per sequence
  bool halves = false;  // also record the halves of every full step, not when they are first needed
  // Called at each point of the start-up. Null: nobody waits.
  std::function<void(StartPoint point, const LoadedProgram& loaded)> reached;
};
// The ladders of an executor, before anything is recorded.
Coverage wanted_coverage(const ExecutorOptions& options);

class Executor;

// Hooks through which diagnose/ looks at steps as they run. Null: none.
struct StepHooks {
  // Called when the inputs of a step, or of a burst, are enqueued and its launches are not.
  std::function<void(Executor&)> before;
  // Called when its launches are enqueued.
  std::function<void(Executor&)> after;
};

// The inputs that a launch of steps begins with.
enum class InputsFrom : uint8_t {
  kHost,      // those that the host has written since begin(), which are sent
  kLastStep,  // those of the same rows that the last launch left on the device
};

// Runs the steps of a program: at construction everything is lowered and recorded, and from then on a
// step is begin(), the inputs, and run().
// Lifetime: refers to the device, the stream and the program. Threads: one.
class Executor {
 public:
  // Records what the options want (runtime/recorder.h); no KV is mapped yet. `weights` by
  // ValueId::index of the program's graph; the caller owns their memory. Errors: kMemory, kUnsupported,
  // kCompile, and the device's, naming op, segment and size.
  Executor(Device& device, Stream& stream, const passes::Program& program,
           std::vector<TensorView> weights, const ExecutorOptions& options);
  // Waits for the work in flight.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Has the other ranks run what this executor, of rank 0, runs from now on: they get its inputs, pages,
  // token state and token masks, and each of its launches. All leave a burst at the step at which this
  // executor's device does (`all_gather` in ops.cc). Tokens that differ between ranks end all (rank_tokens.h).
  void lead(Followers& followers);

  // Chooses the way, fixes the padded sizes, and readies the host twin for writing.
  Choice begin(const StepKey& step);
  // The choice that begin() made last.
  [[nodiscard]] const Choice& choice() const { return choice_; }
  // Row `row` of what a grammar lets a sequence have next, a bit a token: memory of the host that the
  // device reads when it chooses tokens. See `adjust_logits` in ops.cc. To be written while no launched
  // step still has to choose the row's token. REQUIRES: the graph samples.
  [[nodiscard]] std::span<uint32_t> token_mask(int64_t row);
  // Enqueues the step, or all of it that needs no token masks. REQUIRES, of inputs that the last step left: the
  // last launch was of one token per sequence, and nothing has begun since.
  void run(const StepLengths& lengths, InputsFrom from = InputsFrom::kHost,
           StepPart part = StepPart::kWhole);
  // Enqueues the rest of a step that ran until its logits. Nothing else may run in between.
  void finish();
  // Enqueues several steps in one launch: as many steps of the same rows as it takes for `end` to be the
  // next, a few more, or fewer when all rows end. Nothing else may be launched until it has run and
  // recount() was called. REQUIRES: has_burst(), and what run() requires.
  void run_burst(StepNumber end, InputsFrom from = InputsFrom::kHost);
  [[nodiscard]] bool has_burst() const;

  // The number of the step that is launched next.
  [[nodiscard]] StepNumber next_step() const { return next_step_; }
  // Counts the steps again by what was published, after a burst, or after launches that are no
  // steps.
  void recount() { next_step_ = output_.ring().published(); }
  [[nodiscard]] StepOutput& output() { return output_; }

  // Runs the next steps this way where possible, beginning with one that is begun anew:
  // benchmarks and tests compare modes.
  void set_graphs(Graphs graphs);
  [[nodiscard]] StepHooks& hooks() { return hooks_; }

  // The program: its device and stream, its inputs, its memory, its recordings. Changes to page tables, and to
  // the state of tokens, are written in front of the next launch of steps.
  [[nodiscard]] LoadedProgram& loaded() { return loaded_; }
  [[nodiscard]] const LoadedProgram& loaded() const { return loaded_; }
  [[nodiscard]] TokenState& token_state() { return token_state_; }
  // The recordings that exist.
  [[nodiscard]] const Coverage& coverage() const { return coverage_; }

 private:
  // Sends the inputs of a step that has begun.
  void send_inputs();
  // Enqueues the changes that the host has made since the last launch, in front of the next.
  void prepare();
  // Enqueues what is left of the step.
  void finish_own();
  // The other ranks make the calls that are mirrored, and then this one. REQUIRES: there are some.
  void follow(Followers::Call call);
  // Mirrors what the host has written of token masks since the last launch.
  void mirror_masks();
  // Mirrors the tokens that steps have given since the last launch, and notes the rows of the one that is launched.
  void mirror_tokens();
  // Runs `work` of rank 0. Errors: those of `work`, which end the other ranks too.
  template <typename Work>
  void lead_through(const Work& work);
  // Can the step be enqueued in halves? Where they are replayed, records them if need be.
  bool has_halves();
  // The rest of a step that was launched up to its logits.
  struct Rest {
    Step step;
    StepPart part = StepPart::kWhole;
  };

  LoadedProgram loaded_;
  Coverage coverage_;
  std::optional<OnDemandRecordings> on_demand_;  // where the ladder is `lru:N`
  TokenState token_state_;
  TensorView token_masks_;  // i32[M,V/32]
  Choice choice_;
  StepOutput output_;
  StepNumber next_step_ = 0;
  std::optional<Rest> rest_;
  StepHooks hooks_;
  Followers* followers_ = nullptr;         // null: this is the only rank, or not rank 0
  std::vector<Followers::Call> mirrored_;  // calls that other ranks make with the next launch
  std::vector<int64_t> masked_rows_;       // of token masks, since the last launch
  TokenRows token_rows_;                   // of the step that has begun
  GivenTokens given_tokens_;               // of rank 0
  ExpectedTokens expected_tokens_;         // of another rank
};

}  // namespace encore::runtime
