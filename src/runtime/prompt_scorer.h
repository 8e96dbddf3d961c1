// Computes log probabilities of the tokens of prompts, which are given and not sampled.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/sampling.h"
#include "runtime/followers.h"
#include "runtime/loaded_program.h"

namespace encore::runtime {

// Runs the program that scores tokens of prompts. Lifetime: refers to the device, the stream, the
// program and the memory of the weights. Threads: one.
class PromptScorer {
 public:
  // A token of a prompt that is to be scored.
  struct Row {
    int32_t row = 0;  // row of the step whose token precedes the scored token
    int32_t token = 0;
    int32_t num_top = 0;   // likeliest tokens to name beside the scored one
    int32_t adapter = -1;  // adapter slot of the sequence; -1: none
  };
  // The scores that were enqueued after one step.
  struct InFlight {
    uint32_t first_run = 0;
    std::unique_ptr<Event> done;
  };

  // `program` is the compiled score graph (model/graph.h). `stream` is the stream of the steps.
  // `weights` is indexed by ValueId::index, and includes the values that a step leaves for the
  // scorer. Errors: kMemory, kUnsupported, kCompile.
  PromptScorer(Device& device, Stream& stream, const passes::Program& program,
               std::vector<TensorView> weights);

  // Lowers, warms up and records the program. Errors: the device's errors. With
  // RecordingErrors::kDrop, an error while recording only leaves the recording out, and scores are
  // then launched kernel by kernel.
  void record(RecordingErrors policy);
  // Lowers and warms up the program without recording it, so scores are launched kernel by kernel.
  void warm_up();

  // Makes the other ranks score the same rows that this scorer, rank 0's, scores from now on.
  void lead(Followers& followers) { followers_ = &followers; }
  // Enqueues the computation of scores for `rows` of the step launched last. There are at most as
  // many rows as a step may have tokens.
  [[nodiscard]] InFlight launch(std::span<const Row> rows);
  // Returns the score of the i-th row. Call it after `scores.done` has passed. The score stays
  // readable until the scores of two later steps are launched.
  [[nodiscard]] const LogprobRow& score(const InFlight& scores, int64_t i) const;

  // Returns the bytes that the scorer allocated on the device.
  [[nodiscard]] int64_t bytes() const;
  [[nodiscard]] bool is_recorded() const { return mode_ == Mode::kFull; }

 private:
  void run(std::span<const Row> rows);
  // Runs once on padding rows, where the device sets something up at a first run.
  void run_on_padding();

  LoadedProgram loaded_;
  StepKey key_;  // shape of a run
  Mode mode_ = Mode::kEager;
  TensorView ring_;  // i32[E,B,W]
  uint32_t next_run_ = 0;
  Followers* followers_ = nullptr;  // null: this is the only rank, or not rank 0
};

}  // namespace encore::runtime
