// Runs a program's steps in one of three modes. An eager step launches every kernel. A piecewise
// step replays the recordings of the recordable segments and launches the nodes between them,
// attention above all. A full step replays one recording.
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
// Where each sequence takes one token, a step leaves the inputs of the next step on the device:
//
//   executor.run({1, max_kv_len + 1}, InputsFrom::kLastStep);  // the same rows again, nothing copied
//
// Where a grammar needs the tokens of the last step to say which may come next, the host runs a
// step in halves:
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

// Says whether the largest or the smallest size is recorded first (--record-order). Both orders
// record the same sizes.
enum class RecordOrder : uint8_t { kDescending, kAscending };

// The points of the start-up at which the ranks of a model wait for each other: all kernels are
// chosen (kLowered), their code is loaded (kLoaded), whole steps have run (kWarm), and everything
// is recorded (kRecorded). After kLoaded and after kRecorded, whole steps run with their
// collectives, in which no rank may wait for long.
enum class StartPoint : uint8_t { kLowered, kLoaded, kWarm, kRecorded };
// Names the part of the start-up that follows the point, for messages: "the recordings".
std::string_view name(StartPoint point);

struct ExecutorOptions {
  Limits limits;
  Graphs graphs = Graphs::kAuto;
  bool record_all_modes = false;  // also modes that `graphs` does not use, to compare them
  Ladder sequences;               // empty: Ladder::sequences(max_batch_size)
  Ladder tokens;                  // empty: Ladder::tokens(max_num_tokens)
  bool pad_uniform = true;        // false: uniform steps are replayed at exact sizes only
  RecordingErrors recording_errors = RecordingErrors::kStop;
  RecordOrder record_order = RecordOrder::kDescending;
  EagerSteps eager_steps = EagerSteps::kAllow;
  bool bursts = false;  // also record bursts of every full step of one token per sequence
  bool halves = false;  // record the halves of every full step at start-up, not on demand
  // Called at each point of the start-up. Null: nobody waits.
  std::function<void(StartPoint point, const LoadedProgram& loaded)> reached;
};
// Returns the ladders and the recordings that the options ask for, before anything is recorded.
Coverage wanted_coverage(const ExecutorOptions& options);

class Executor;

// Functions of diagnose/ that are called as steps run. A null function is not called.
struct StepHooks {
  // Called after the inputs of a step, or of a burst, were enqueued, and before its launches are.
  std::function<void(Executor&)> before;
  // Called after the launches of the step or burst were enqueued.
  std::function<void(Executor&)> after;
};

// Says where the inputs of a launch of steps come from.
enum class InputsFrom : uint8_t {
  kHost,      // the host sends the inputs that it has written since begin()
  kLastStep,  // the last launch left the inputs of the same rows on the device
};

// Runs the steps of a program. The constructor lowers and records everything. Then, for each step,
// the caller calls begin(), writes the inputs, and calls run(). Lifetime: refers to the device, the
// stream and the program. Threads: one.
class Executor {
 public:
  // Records what the options want (runtime/recorder.h). No KV memory is mapped yet. `weights` is
  // indexed by ValueId::index of the program's graph, and the caller owns their memory. Errors:
  // kMemory, kUnsupported, kCompile, and the device's errors, naming op, segment and size.
  Executor(Device& device, Stream& stream, const passes::Program& program,
           std::vector<TensorView> weights, const ExecutorOptions& options);
  // Waits until the device has run all work in flight.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Makes the other ranks run everything that this executor, rank 0's, runs from now on: they get
  // its inputs, pages, token state, token masks and launches. All ranks leave a burst at the same
  // step as the device of rank 0 (`all_gather` in ops.cc). Ranks whose tokens differ end with an
  // error (rank_tokens.h).
  void lead(Followers& followers);

  // Chooses the mode of the step, fixes its padded sizes, and readies the host's copy of its inputs
  // for writing.
  Choice begin(const StepKey& step);
  // Returns the choice that the last begin() made.
  [[nodiscard]] const Choice& choice() const { return choice_; }
  // Returns row `row` of the token masks, which has a bit for each token that a grammar allows
  // next. The row lies in host memory, which the device reads when it chooses tokens
  // (`adjust_logits` in ops.cc). Write it only while no launched step still has to choose the row's
  // token. REQUIRES: the graph samples.
  [[nodiscard]] std::span<uint32_t> token_mask(int64_t row);
  // Enqueues the step, or the half of it that needs no token masks. REQUIRES, for
  // InputsFrom::kLastStep: the last launch had one token per sequence, and no step has begun since.
  void run(const StepLengths& lengths, InputsFrom from = InputsFrom::kHost,
           StepPart part = StepPart::kWhole);
  // Enqueues the second half of a step whose first half, up to its logits, was enqueued. Nothing
  // else may be enqueued between the halves.
  void finish();
  // Enqueues a burst: several steps of the same rows in one launch. The burst ends when `end` is
  // the next step, a few steps later, or earlier when all rows have ended. Nothing else may be
  // launched until the burst has run and recount() was called. REQUIRES: has_burst(), and what
  // run() requires.
  void run_burst(StepNumber end, InputsFrom from = InputsFrom::kHost);
  [[nodiscard]] bool has_burst() const;

  // Returns the number that the next launched step will have.
  [[nodiscard]] StepNumber next_step() const { return next_step_; }
  // Sets next_step() to the number of steps that the device has published. Call it after a burst,
  // or after launches that are not steps.
  void recount() { next_step_ = output_.ring().published(); }
  [[nodiscard]] StepOutput& output() { return output_; }

  // Sets the mode that later steps use where possible, from the next begin() on. Benchmarks and
  // tests compare modes with it.
  void set_graphs(Graphs graphs);
  [[nodiscard]] StepHooks& hooks() { return hooks_; }

  // Returns the program with its device, stream, inputs, memory and recordings. Changes to its page
  // tables, and to token_state(), are written to the device just before the next launch of steps.
  [[nodiscard]] LoadedProgram& loaded() { return loaded_; }
  [[nodiscard]] const LoadedProgram& loaded() const { return loaded_; }
  [[nodiscard]] TokenState& token_state() { return token_state_; }
  // Returns which recordings exist.
  [[nodiscard]] const Coverage& coverage() const { return coverage_; }

 private:
  // Sends the inputs of a step that has begun.
  void send_inputs();
  // Enqueues the changes to pages and token state that the host has made since the last launch.
  void prepare();
  // Enqueues the second half of the step on this rank's device.
  void finish_own();
  // Posts the mirrored calls to the other ranks, and `call` after them. REQUIRES: there are other
  // ranks.
  void follow(Followers::Call call);
  // Mirrors to the other ranks the rows of token masks that the host has written since the last
  // launch.
  void mirror_masks();
  // Mirrors to the other ranks the tokens that were published since the last launch, and notes
  // which rows the step that is launched now has.
  void mirror_tokens();
  // Runs `work` on rank 0. An error of `work` is thrown, and ends the other ranks too.
  template <typename Work>
  void lead_through(const Work& work);
  // Returns whether the step can be enqueued in halves. Records the halves first where they are to
  // be replayed and are not recorded yet.
  bool has_halves();
  // The step whose first half was launched, and the half that is still to be launched.
  struct Rest {
    Step step;
    StepPart part = StepPart::kWhole;
  };

  LoadedProgram loaded_;
  Coverage coverage_;
  std::optional<OnDemandRecordings> on_demand_;  // only where the ladder is `lru:N`
  TokenState token_state_;
  TensorView token_masks_;  // i32[M,V/32]
  Choice choice_;
  StepOutput output_;
  StepNumber next_step_ = 0;
  std::optional<Rest> rest_;
  StepHooks hooks_;
  Followers* followers_ = nullptr;         // null: this is the only rank, or not rank 0
  std::vector<Followers::Call> mirrored_;  // calls that other ranks make before the next launch
  std::vector<int64_t> masked_rows_;       // rows of token masks written since the last launch
  TokenRows token_rows_;                   // the rows of the step that has begun
  GivenTokens given_tokens_;               // used by rank 0
  ExpectedTokens expected_tokens_;         // used by every other rank
};

}  // namespace encore::runtime
