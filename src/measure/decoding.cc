#include "measure/decoding.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rounding.h"
#include "base/statistics.h"
#include "measure/timing.h"

namespace encore::measure {
namespace {

constexpr uint64_t kKvSeed = 7;
constexpr uint64_t kPageSeed = 11;
constexpr uint64_t kTokenSeed = 13;
constexpr int kSingleSteps = 20;

int32_t slot_of(loader::LoadedModel& model, int64_t i) {
  const auto adapter = adapter_of(model, i);
  return adapter == nullptr ? -1 : model.adapters()->wait_for(adapter)->slot();
}

}  // namespace

std::shared_ptr<const loader::Adapter> adapter_of(const loader::LoadedModel& model, int64_t i) {
  if (model.adapters() == nullptr) return nullptr;
  const auto all = model.adapters()->all();
  const int64_t count = std::min(std::ssize(all), model.adapters()->num_slots());
  return count == 0 ? nullptr : all[static_cast<size_t>(i % count)];
}

std::vector<std::vector<int32_t>> random_prompts(int64_t count, int64_t length, int64_t vocab_size,
                                                 uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int32_t>> prompts(count);
  for (auto& prompt : prompts) {
    for (int64_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
    }
  }
  return prompts;
}

int64_t DecodingOptions::max_tokens(const runtime::Limits& limits) const {
  const int64_t prompt_tokens_per_step = std::max<int64_t>(1, limits.mixed_tokens() - batch);
  const int64_t prompt_steps = batch * context / prompt_tokens_per_step + 2;
  // The warm-up and the timed steps may each end with a burst, whose tokens come together.
  const int64_t at_once =
      burst_steps > 1 ? burst_steps + runtime::Recordings::kStepsPerIteration : 1;
  const int64_t tokens = warmup_tokens + steps + prompt_steps + 2 * (at_once - 1);
  return tokens * (1 + limits.num_drafts);
}

Decoding::Decoding(engine::Engine& engine, const DecodingOptions& options)
    : engine_(engine), batch_(options.batch) {
  engine.shuffle_pages(kPageSeed);
  const int64_t max_tokens = options.max_tokens(engine.model().limits());
  for (auto& prompt : random_prompts(options.batch, options.context,
                                     engine.model().config().vocab_size, options.seed)) {
    engine::Request request{
        .prompt = std::move(prompt), .max_tokens = max_tokens, .sampling = options.sampling};
    const auto adapter = adapter_of(engine.model(), std::ssize(sequences_));
    const auto i = static_cast<double>(sequences_.size());
    if (std::floor((i + 1) * options.share_without_drafts) >
        std::floor(i * options.share_without_drafts))
      request.sampling.without_drafts = 1;
    if (options.has_adapters && adapter != nullptr) request.adapter = adapter->name;
    const auto added = engine.add(std::move(request));
    if (const auto* rejection = std::get_if<engine::Rejection>(&added))
      fail(ErrorKind::kUsage, "{}", rejection->why);
    sequences_.push_back(std::get<engine::SequenceId>(added));
  }
  run_until(options.warmup_tokens);
}

Decoding::~Decoding() {
  for (const engine::SequenceId sequence : sequences_)
    engine_.abort(sequence);
}

void Decoding::run_until(int64_t generated) {
  while (generated_ < generated) {
    const bool ran = engine_.step([&](const engine::Generated& token) {
      generated_ += token.sequence == sequences_.back() ? 1 : 0;
      ++num_generated_;
    });
    ENCORE_CHECK(ran, "the sequences ended after {} tokens", generated_);
  }
}

int64_t Decoding::step() {
  const int64_t before = generated_;
  run_until(before + 1);
  const int64_t sequences = std::ssize(engine_.last_plan().rows);
  ENCORE_CHECK(sequences == batch_, "a decode step of {} sequences", sequences);
  return generated_ - before;
}

int64_t Decoding::kv_tokens(int64_t steps) const {
  int64_t last = 0;
  for (const sched::ScheduledTokens& row : engine_.last_plan().rows)
    last += row.end();
  return steps * last - batch_ * steps * (steps - 1) / 2;
}

Trace trace_steps(Tracer& tracer, const std::function<void()>& step, int64_t num_steps) {
  tracer.start();
  for (int i = 0; i < kTracerWarmUpSteps; ++i)
    step();
  for (int64_t i = 0; i < num_steps; ++i) {
    tracer.next_step();
    step();
  }
  return tracer.stop();
}

FilledKv::FilledKv(loader::LoadedModel& model) : model_(model), pages_(model.num_pages()) {
  diagnose::fill_kv(model, kKvSeed, 1.0F);
  std::iota(pages_.begin(), pages_.end(), 0);
  std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64(kPageSeed));
}

diagnose::TrialStep FilledKv::step(int64_t batch, int64_t context, int64_t prompt_tokens,
                                   int64_t steps) const {
  const int64_t page_size = model_.page_size();
  const int64_t pages_each = (context + steps) / page_size + 1;
  const int64_t prompt_pages = div_up(prompt_tokens, page_size);
  if (batch * pages_each + prompt_pages > std::ssize(pages_)) {
    fail(ErrorKind::kUsage, "{} sequences of {} tokens{} do not fit the KV pool of {} pages", batch,
         context + 1,
         prompt_tokens > 0 ? fmt::format(" and a prompt of {}", prompt_tokens) : std::string(),
         pages_.size());
  }
  diagnose::TrialStep step;
  for (int64_t b = 0; b < batch; ++b) {
    const auto pages = pages_.begin() + b * pages_each;
    step.sequences.push_back({context, 1, {pages, pages + pages_each}, {}, slot_of(model_, b)});
  }
  if (prompt_tokens > 0)
    step.sequences.push_back({0,
                              prompt_tokens,
                              {pages_.end() - prompt_pages, pages_.end()},
                              {},
                              slot_of(model_, batch)});
  return step;
}

diagnose::TrialStep FilledKv::prompts(int64_t tokens) const {
  const int64_t longest = model_.limits().max_seq_len;
  const int64_t count = div_up(tokens, longest);
  const int64_t pages_each = std::ssize(pages_) / count;
  diagnose::TrialStep step;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = tokens * (i + 1) / count - tokens * i / count;
    if (length > pages_each * model_.page_size()) {
      fail(ErrorKind::kUsage, "prompts of {} tokens do not fit the KV pool of {} pages", tokens,
           pages_.size());
    }
    const auto pages = pages_.begin() + i * pages_each;
    const int64_t num_pages = div_up(length, model_.page_size());
    step.sequences.push_back({0, length, {pages, pages + num_pages}, {}, slot_of(model_, i)});
  }
  return step;
}

runtime::Choice FilledKv::begin(const diagnose::TrialStep& step) {
  return diagnose::begin(model_, step, kTokenSeed);
}

SingleStep time_single_steps(FilledKv& kv, const diagnose::TrialStep& step) {
  runtime::Executor& executor = kv.executor();
  runtime::LoadedProgram& loaded = executor.loaded();
  const auto began = loaded.device.create_event();
  const auto ended = loaded.device.create_event();
  std::vector<double> enqueue_us;
  std::vector<double> device_us;
  for (int i = 0; i < kSingleSteps; ++i) {
    kv.begin(step);
    loaded.stream.record(*began);
    const double start = now_seconds();
    executor.run(step.lengths());
    enqueue_us.push_back((now_seconds() - start) * 1e6);
    loaded.stream.record(*ended);
    loaded.stream.synchronize();
    device_us.push_back(ended->milliseconds_since(*began) * 1e3);
  }
  return {median(enqueue_us), median(device_us)};
}

RepeatedStep::RepeatedStep(FilledKv& kv, const diagnose::TrialStep& step)
    : executor_(kv.executor()),
      choice_(kv.begin(step)),
      lengths_(step.lengths()),
      ended_{executor_.loaded().device.create_event(), executor_.loaded().device.create_event()} {}

RepeatedStep::~RepeatedStep() {
  try {
    executor_.loaded().stream.synchronize();
  } catch (...) {  // ignored: step() has thrown the device's errors before
  }
}

void RepeatedStep::step() {
  executor_.run(lengths_);
  executor_.loaded().stream.record(*ended_.at(num_steps_ % 2));
  if (num_steps_ > 0) ended_.at((num_steps_ + 1) % 2)->synchronize();
  ++num_steps_;
}

}  // namespace encore::measure
