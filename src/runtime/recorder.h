// Start-up: everything that a step launches is lowered, warm and, as far as it is wanted, recorded
// before the first step comes.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/executor.h"

namespace encore::runtime {

// Lifetime: refers to the executor and the options, which are those of the executor.
class Recorder {
 public:
  Recorder(Executor& executor, const ExecutorOptions& options);

  // Lowers, warms up and records every bucket, largest first: in full (--graphs auto and full), or
  // in pieces (piecewise, or where a launch cannot be in a full recording).
  // --graphs none leaves out the recording only, so that every mode runs the same kernels and
  // leaves KV the same memory. Steps above the ladders are lowered and warm at some sizes.
  // Errors: as the device's, naming op, segment and size.
  const RecordingStats& record();

 private:
  // Every step that may ask for memory to scribble on.
  [[nodiscard]] std::vector<StepKey> all_steps() const;
  void lower();
  void lower_size(const StepKey& step);
  // Launches each kernel once for each shape of its operands, on padding rows only: what a device
  // sets up at a first launch (a library's code is loaded then) must not be set up in a recording.
  void warm_up();
  void warm_up(const std::vector<StepKey>& steps);
  // What to record, once all steps are lowered. Errors: kUsage.
  void plan_recordings();
  // Records as many of the smallest steps as an lru ladder will ever hold, so that their memory is
  // taken before KV's.
  void record_for_demand();
  void record_steps(std::vector<StepKey> steps, bool full, bool pieces);
  void drop_piece(int segment, const StepKey& step);
  // Finds, or remembers, which of the mixed steps that auto would replay in pieces are faster eager.
  void weigh_pieces();
  // Runs a step on padding rows as it would be replayed; does nothing where it would run eager.
  void run_on_padding(const StepKey& step);

  Executor& executor_;
  LoadedProgram& loaded_;
  Coverage& coverage_;
  const ExecutorOptions& options_;
  // What ladders name, and what stands for the steps above them; the largest first.
  std::vector<StepKey> uniform_;
  std::vector<StepKey> mixed_;
  std::vector<StepKey> above_;
  std::set<std::string> warm_;  // signatures launched before
};

}  // namespace encore::runtime
