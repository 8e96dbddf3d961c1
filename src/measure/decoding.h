// Sets up sequences that decode, for benchmarks. The engine either reads their prompts, or random
// KV replaces the prompts.
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

// Returns distinct prompts of random tokens. The same seed gives the same prompts.
std::vector<std::vector<int32_t>> random_prompts(int64_t count, int64_t length, int64_t vocab_size,
                                                 uint64_t seed);

// Describes `batch` sequences that decode after distinct prompts of `context` random tokens each.
// Their pages lie in random order in the pool. The sequences take the model's adapters, where it
// has any, in turn.
struct DecodingOptions {
  int64_t batch = 1;
  int64_t context = 512;
  int64_t warmup_tokens = 1;  // tokens of the sequence that started last, when timing begins
  int64_t steps = 1;          // steps that can be run after warming up
  int64_t burst_steps = 1;    // the engine's steps per burst
  uint64_t seed = 1;
  bool has_adapters = true;  // false: no sequence takes an adapter, even if the model has some
  sample::SamplingParams sampling;  // by default greedy
  double share_without_drafts = 0;  // the share of sequences that take no drafts

  // Returns how many tokens each sequence generates. The number is large enough that no sequence
  // ends before the one that started last has run all its steps.
  [[nodiscard]] int64_t max_tokens(const runtime::Limits& limits) const;
  // Returns the context length of the middle one of the timed steps. Units: tokens.
  [[nodiscard]] int64_t middle() const { return context + warmup_tokens + steps / 2; }
};

// Returns the adapter that the i-th sequence takes, where sequences share the loaded adapters in
// turn. Null where the model has no adapters.
std::shared_ptr<const loader::Adapter> adapter_of(const loader::LoadedModel& model, int64_t i);

// Runs steps of an engine in which all sequences decode. Lifetime: refers to the engine, and ends
// its own sequences there when destroyed.
class Decoding {
 public:
  // Reads the prompts and decodes until the last sequence has `warmup_tokens` tokens. Errors:
  // kUsage when the sequences do not fit.
  Decoding(engine::Engine& engine, const DecodingOptions& options);
  ~Decoding();
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  // Runs the engine until the sequence that started last has at least one more token on the host. A
  // burst, or accepted drafts, give several tokens at once. Returns how many tokens that sequence
  // gained.
  int64_t step();
  // Returns how many tokens all sequences have generated so far.
  [[nodiscard]] int64_t num_generated() const { return num_generated_; }
  // Returns how many tokens' K and V attention read in the last `steps` steps.
  [[nodiscard]] int64_t kv_tokens(int64_t steps) const;

 private:
  void run_until(int64_t generated);

  engine::Engine& engine_;
  int64_t batch_;
  std::vector<engine::SequenceId> sequences_;
  int64_t generated_ = 0;  // tokens of the sequence that started last
  int64_t num_generated_ = 0;
};

// Traces `num_steps` calls of `step`, after kTracerWarmUpSteps untimed calls that warm the tracer
// up.
inline constexpr int kTracerWarmUpSteps = 4;
Trace trace_steps(Tracer& tracer, const std::function<void()>& step, int64_t num_steps);

// Runs decode steps without prompts: KV is filled with random numbers, and pages are dealt out in
// random order.
class FilledKv {
 public:
  // Fills all of the KV of `model` with random numbers.
  explicit FilledKv(loader::LoadedModel& model);

  // Returns a step in which each of `batch` sequences takes one token after `context` others. The
  // sequences have pages for `steps` such steps. If `prompt_tokens` > 0, the step also reads a
  // prompt of that many tokens.
  // Errors: kUsage when the pages do not suffice.
  [[nodiscard]] diagnose::TrialStep step(int64_t batch, int64_t context, int64_t prompt_tokens = 0,
                                         int64_t steps = 1) const;
  // Returns a step that reads `tokens` prompt tokens: as one prompt, or, where that would be longer
  // than a sequence may be, as the fewest prompts that hold them. Errors: kUsage when the pages do
  // not suffice.
  [[nodiscard]] diagnose::TrialStep prompts(int64_t tokens) const;
  // Prepares the step's inputs. After that, executor().run(step.lengths()) enqueues the step.
  runtime::Choice begin(const diagnose::TrialStep& step);
  [[nodiscard]] runtime::Executor& executor() { return model_.executor(); }

 private:
  loader::LoadedModel& model_;
  std::vector<int32_t> pages_;  // page numbers, in the order in which sequences get them
};

// Holds medians over single steps; the host waits for each step before it begins the next. Units:
// microseconds.
struct SingleStep {
  double enqueue_us = 0;  // from the start of the host's call until the step is enqueued
  double device_us = 0;   // from the event before the step to the event after it
};
SingleStep time_single_steps(FilledKv& kv, const diagnose::TrialStep& step);

// Runs one step repeatedly. The host enqueues each run before it waits for the end of the previous
// run.
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
  // The event ended_[i % 2] is recorded behind run i, so the two events mark the ends of the last
  // two runs.
  std::array<std::unique_ptr<Event>, 2> ended_;
  int64_t num_steps_ = 0;
};

}  // namespace encore::measure
