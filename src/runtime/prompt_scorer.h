// Computes log probabilities of tokens that are given, not sampled: those of prompts.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/sampling.h"
#include "runtime/followers.h"
#include "runtime/loaded_program.h"

namespace encore::runtime {

// Lifetime: refers to the device, the stream, the program and the memory of the weights.
// Threads: one.
class PromptScorer {
 public:
  // A token to score.
  struct Row {
    int32_t row = 0;  // of the step, whose token it follows
    int32_t token = 0;
    int32_t num_top = 0;   // likeliest tokens to name beside it
    int32_t adapter = -1;  // slot of the sequence's; -1: none
  };
  // The scores that were enqueued behind one step.
  struct InFlight {
    uint32_t first_run = 0;
    std::unique_ptr<Event> done;
  };

  // `program` is a score graph (model/graph.h), compiled; `stream` that of the steps; `weights` by
  // ValueId::index, what the step leaves among them. Errors: kMemory, kUnsupported, kCompile.
  PromptScorer(Device& device, Stream& stream, const passes::Program& program,
               std::vector<TensorView> weights);

  // Lowers, warms up, and records. Errors: as the device's; by policy, one while
  // recording leaves the recording out, and the scores are launched.
  void record(RecordingErrors policy);
  // Lowers and warms up: the scores are launched.
  void warm_up();

  // Has the other ranks score what this one, of rank 0, scores from now on.
  void lead(Followers& followers) { followers_ = &followers; }
  // Enqueues the scores of rows of the step launched last: as many as that may have tokens, at most.
  [[nodiscard]] InFlight launch(std::span<const Row> rows);
  // The score of the i-th row, once `done` has passed. Readable until the scores of two more steps
  // are launched.
  [[nodiscard]] const LogprobRow& score(const InFlight& scores, int64_t i) const;

  // The bytes that it allocated on the device.
  [[nodiscard]] int64_t bytes() const;
  [[nodiscard]] bool is_recorded() const { return mode_ == Mode::kFull; }

 private:
  void run(std::span<const Row> rows);
  // Runs once on padding rows, where the device sets something up at that.
  void run_on_padding();

  LoadedProgram loaded_;
  StepKey key_;  // of a run
  Mode mode_ = Mode::kEager;
  TensorView ring_;  // i32[E,B,W]
  uint32_t next_run_ = 0;
  Followers* followers_ = nullptr;  // null: this is the only rank, or not rank 0
};

}  // namespace encore::runtime
