// Walks one program three ways: eager (launch everything), piecewise (replay the recordable
// segments and launch attention between them), full (replay one recording).
//
//   executor.record();                                     // once, before serving
//   executor.states().map(num_pages);                      // KV takes what is left
//   Choice choice = executor.begin({tokens, sequences, q});
//   executor.inputs().host<int32_t>("ids")[0] = ...;       // fill the real rows of every input
//   executor.launch({max_query_len, max_kv_len});
//   executor.read_output(0, host, bytes);                  // waits for the step
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/device.h"
#include "passes/program.h"
#include "runtime/dispatch.h"
#include "runtime/limits.h"
#include "runtime/lower.h"
#include "runtime/states.h"
#include "runtime/step_inputs.h"

namespace encore::runtime {

// What padding rows, and all intermediate memory before each step, are filled with: shows whether
// they leak.
enum class Poison : uint8_t { kNone, kNaN, kLarge };

struct ExecutorOptions {
  Limits limits;
  Graphs graphs = Graphs::kAuto;
  bool record_all_modes = false;  // whatever `graphs` says, so that modes can be compared
  Ladder sequences;               // empty: Ladder::sequences(max_batch_size)
  Ladder tokens;                  // empty: Ladder::tokens(max_num_tokens)
  bool pad_uniform = true;        // off: uniform steps are replayed at exact sizes only
  Poison poison = Poison::kNone;
};

// Device memory by use, as planned; what `--stats` and the start-up lines show. Units: bytes.
struct MemoryPlan {
  int64_t weights = 0;
  int64_t arena = 0;
  int64_t arena_without_reuse = 0;
  int64_t states = 0;  // KV caches
  int64_t step_inputs = 0;
  int64_t scratch = 0;
};

struct RecordingStats {
  struct Part {
    int recordings = 0;
    int nodes = 0;
    double capture_ms = 0;
    double instantiate_ms = 0;  // and upload
    [[nodiscard]] double ms() const { return capture_ms + instantiate_ms; }
  };
  Part full;
  Part pieces;
  double lower_ms = 0;  // kernels and algorithms chosen and bound
};

// What the host knows of a step's lengths and a recording does not.
struct StepLengths {
  int64_t max_query_len = 0;
  int64_t max_kv_len = 0;
};

// Lifetime: refers to the device and the program. Threads: one.
class Executor {
 public:
  // `weights` by ValueId::index of the program's graph; the caller owns their memory.
  // Errors: kMemory, kUnsupported, kCompile.
  Executor(Device& device, const passes::Program& program, std::vector<TensorView> weights,
           const ExecutorOptions& options);
  ~Executor();

  // Lowers, warms up and records every bucket, largest first: uniform steps in full (--graphs auto
  // and full) or in pieces (piecewise, or when an op cannot be recorded), mixed steps in pieces.
  // Errors: as the device's, naming op, segment and size.
  RecordingStats record();

  // Chooses the way, fixes the padded sizes, and readies the host twin for writing.
  Choice begin(const StepRequest& request);
  [[nodiscard]] StepInputs& inputs() { return *inputs_; }
  // Copies the inputs and enqueues the step.
  void launch(const StepLengths& lengths);
  // Waits for the step and copies `bytes` of graph output `index` to the host.
  void read_output(int index, void* host, int64_t bytes);
  void synchronize() { stream_->synchronize(); }

  // Walks the next steps this way where possible: benchmarks and tests compare modes.
  void set_graphs(Graphs graphs) { coverage_.graphs = graphs; }
  // The KV caches. Nothing is mapped until the caller does so, after record(): a step with real
  // rows needs the pages it names.
  [[nodiscard]] States& states() { return states_; }
  [[nodiscard]] MemoryPlan memory_plan() const {
    MemoryPlan plan = memory_plan_;
    plan.states = states_.mapped_bytes();
    return plan;
  }
  [[nodiscard]] const Coverage& coverage() const { return coverage_; }
  [[nodiscard]] const passes::Program& program() const { return program_; }
  [[nodiscard]] Stream& stream() { return *stream_; }
  [[nodiscard]] Device& device() { return device_; }

  // The lowered table of one segment at one step shape, as `inspect` shows it.
  const std::vector<Launch>& table(int segment, const StepShape& step);
  // The full recording at bucket `sequences`, when there is one.
  [[nodiscard]] const Recording* full_recording(int64_t sequences, int q) const;

 private:
  class AddressMap;
  using Key = std::tuple<int, int64_t, int64_t, int>;  // segment, T, B, q
  [[nodiscard]] Key key(int segment, const StepShape& step) const;
  // What a segment's launches depend on.
  struct Dependence {
    bool on_tokens = false;
    bool on_sequences = false;
    bool on_q = false;
  };
  [[nodiscard]] Dependence dependence(const passes::Segment& segment) const;
  [[nodiscard]] std::vector<StepShape> uniform_shapes() const;
  [[nodiscard]] std::vector<StepShape> mixed_shapes() const;
  [[nodiscard]] bool in_pieces(int segment) const;
  [[nodiscard]] Workspace largest_workspace() const;
  void launch_segment(int segment, const StepShape& step);
  void walk_eager(const StepShape& step);
  void warm_up(const StepShape& step);
  void record_full(const StepShape& step, RecordingStats::Part& stats);
  void record_pieces(const StepShape& step, RecordingStats::Part& stats);
  // What `walk` launches as a recording. `what` names it in errors.
  std::unique_ptr<Recording> record_walk(const std::string& what, RecordingStats::Part& stats,
                                         const std::function<void()>& walk);
  void poison_arena();

  Device& device_;
  const passes::Program& program_;
  ExecutorOptions options_;
  Coverage coverage_;
  std::vector<Dependence> dependences_;  // by segment
  MemoryPlan memory_plan_;
  std::unique_ptr<Stream> stream_;
  States states_;
  std::unique_ptr<StepInputs> inputs_;
  std::unique_ptr<AddressMap> addresses_;
  Memory host_output_;
  std::map<Key, std::vector<Launch>> tables_;
  std::map<Key, std::unique_ptr<Recording>> pieces_;
  std::map<std::pair<int64_t, int>, std::unique_ptr<Recording>> full_;  // by B, q
  Choice choice_;
};

}  // namespace encore::runtime
