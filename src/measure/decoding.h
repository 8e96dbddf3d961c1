// Sequences that decode, for benchmarks: the engine brings them there by reading prompts, or random
// KV stands for the prompts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/tracer.h"
#include "diagnose/trial_step.h"
#include "engine/engine.h"

namespace encore::measure {

// Distinct prompts of random tokens, a function of the seed.
std::vector<std::vector<int32_t>> random_prompts(int64_t count, int64_t length, int64_t vocab_size,
                                                 uint64_t seed);

// `batch` distinct prompts of `context` random tokens, in pages that lie anywhere; the model's adapters,
// where it has any, by turns.
struct DecodingOptions {
  int64_t batch = 1;
  int64_t context = 512;
  int64_t warmup_tokens = 1;  // that the sequence which started last has when it begins
  int64_t steps = 1;          // that can be run then
  int64_t burst_steps = 1;    // the engine's
  uint64_t seed = 1;
  bool has_adapters = true;         // false: sequences take none, whatever the model has
  sample::SamplingParams sampling;  // greedy
  double share_without_drafts = 0;  // of the sequences: so many take none

  // Returns how many tokens each sequence generates, so that none ends while the last still
  // decodes: those that started first go on until the last has been timed.
  [[nodiscard]] int64_t max_tokens(const runtime::Limits& limits) const;
  // The context of the step in the middle of those that are timed.
  [[nodiscard]] int64_t middle() const { return context + warmup_tokens + steps / 2; }
};

// The adapter of the i-th of sequences that share those in slots; null where there is none.
std::shared_ptr<const loader::Adapter> adapter_of(const loader::LoadedModel& model, int64_t i);

// Steps of an engine in which all sequences decode. Lifetime: refers to the engine; ends its
// sequences.
class Decoding {
 public:
  // Reads the prompts and warms up. Errors: kUsage when they do not fit.
  Decoding(engine::Engine& engine, const DecodingOptions& options);
  ~Decoding();
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  // One more token of every sequence, on the host; in a burst, or where drafts are right, as many as
  // come together. Returns how many, of the sequence that started last.
  int64_t step();
  // Tokens of all sequences so far.
  [[nodiscard]] int64_t num_generated() const { return num_generated_; }
  // Tokens whose K and V attention read in the last so many steps.
  [[nodiscard]] int64_t kv_tokens(int64_t steps) const;

 private:
  void run_until(int64_t generated);

  engine::Engine& engine_;
  int64_t batch_;
  std::vector<engine::SequenceId> sequences_;
  int64_t generated_ = 0;  // by the sequence that started last
  int64_t num_generated_ = 0;
};

// Traces `num_steps` calls of `step`, after a few that warm the tracer up.
inline constexpr int kTracerWarmUpSteps = 4;
Trace trace_steps(Tracer& tracer, const std::function<void()>& step, int64_t num_steps);

// Runs decode steps without prompts: KV is filled with random numbers, and pages are dealt out in
// random order.
class FilledKv {
 public:
  // Fills the KV of `model`, all of it.
  explicit FilledKv(loader::LoadedModel& model);

  // A step in which each of `batch` sequences takes one token after `context` others, with pages
  // for `steps` such steps, and beside them, where `prompt_tokens` > 0, a prompt of so many tokens
  // is read. Errors: kUsage when the pages do not suffice.
  [[nodiscard]] diagnose::TrialStep step(int64_t batch, int64_t context, int64_t prompt_tokens = 0,
                                         int64_t steps = 1) const;
  // A step that reads prompts of `tokens` tokens together: one prompt, or more where that is longer
  // than a sequence may be, but as few as can be. Errors: kUsage when the pages do not suffice.
  [[nodiscard]] diagnose::TrialStep prompts(int64_t tokens) const;
  // Begins the step; executor().run(step.lengths()) enqueues it.
  runtime::Choice begin(const diagnose::TrialStep& step);
  [[nodiscard]] runtime::Executor& executor() { return model_.executor(); }

 private:
  loader::LoadedModel& model_;
  std::vector<int32_t> pages_;  // in the order they are dealt out
};

// Medians over single steps, each of which the host waits for. Units: microseconds.
struct SingleStep {
  double enqueue_us = 0;  // until the host has enqueued it
  double device_us = 0;   // from the device's coming to it until its end
};
SingleStep time_single_steps(FilledKv& kv, const diagnose::TrialStep& step);

// Runs one step again and again, each enqueued before the host waits for the one before it.
class RepeatedStep {
 public:
  RepeatedStep(FilledKv& kv, const diagnose::TrialStep& step);
  ~RepeatedStep();
  RepeatedStep(const RepeatedStep&) = delete;
  RepeatedStep& operator=(const RepeatedStep&) = delete;

  void step();
  [[nodiscard]] const runtime::Choice& choice() const { return choice_; }

 private:
  runtime::Executor& executor_;
  runtime::Choice choice_;
  StepLengths lengths_;
  std::array<std::unique_ptr<Event>, 2> ended_;  // of this step and the one before, by turns
  int64_t num_steps_ = 0;
};

}  // namespace encore::measure
