#include "cli/decoding.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"
#include "cli/bench.h"
#include "engine/trial_step.h"

namespace encore::cli {
namespace {

constexpr uint64_t kKvSeed = 7;
constexpr uint64_t kPageSeed = 11;
constexpr int kSingleSteps = 20;

}  // namespace

int64_t DecodingOptions::max_tokens(const runtime::Limits& limits) const {
  const int64_t prompt_tokens_per_step = std::max<int64_t>(1, limits.mixed_tokens() - batch);
  const int64_t prompt_steps = batch * context / prompt_tokens_per_step + 2;
  return warmup_tokens + steps + prompt_steps;
}

Decoding::Decoding(engine::Engine& engine, const DecodingOptions& options)
    : engine_(engine), batch_(options.batch) {
  engine.shuffle_pages(kPageSeed);
  const int64_t max_tokens = options.max_tokens(engine.model().limits());
  for (auto& prompt : random_prompts(options.batch, options.context,
                                     engine.model().config().vocab_size, options.seed)) {
    const auto added = engine.add({std::move(prompt), max_tokens, options.sampling, {}});
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
    });
    ENCORE_CHECK(ran, "the sequences ended after {} tokens", generated_);
  }
}

void Decoding::step() {
  run_until(generated_ + 1);
  const int64_t tokens = engine_.last_plan().num_tokens();
  ENCORE_CHECK(tokens == batch_, "a decode step of {} tokens", tokens);
}

int64_t Decoding::kv_tokens() const {
  int64_t sum = 0;
  for (const sched::Run& run : engine_.last_plan().runs)
    sum += run.first + run.count;
  return sum;
}

Trace trace_steps(Tracer& tracer, Decoding& decoding, int64_t num_steps) {
  tracer.start();
  for (int i = 0; i < kTracerWarmUpSteps; ++i)
    decoding.step();
  for (int64_t i = 0; i < num_steps; ++i) {
    tracer.next_step();
    decoding.step();
  }
  return tracer.stop();
}

FilledKv::FilledKv(engine::LoadedModel& model) : model_(model), pages_(model.num_pages()) {
  engine::fill_kv(model, kKvSeed, 1.0F);
  std::iota(pages_.begin(), pages_.end(), 0);
  std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64(kPageSeed));
}

runtime::Choice FilledKv::begin(int64_t batch, int64_t context) {
  const int64_t page_size = model_.page_size();
  const int64_t pages_each = context / page_size + 1;
  if (batch * pages_each > static_cast<int64_t>(pages_.size())) {
    fail(ErrorKind::kUsage, "{} sequences of {} tokens do not fit the KV pool of {} pages", batch,
         context + 1, pages_.size());
  }
  runtime::Executor& executor = model_.executor();
  const runtime::Choice choice = executor.begin({batch, batch, 1});
  runtime::StepInputs& inputs = executor.inputs();
  const auto ids = inputs.host<int32_t>("ids");
  const auto positions = inputs.host<int32_t>("positions");
  const auto slots = inputs.host<int32_t>("slots");
  const auto page_table = inputs.host<int32_t>("page_table");
  const auto kv_lens = inputs.host<int32_t>("kv_lens");
  const auto query_starts = inputs.host<int32_t>("query_starts");
  const auto last_rows = inputs.host<int32_t>("last_rows");
  const size_t max_pages = page_table.size() / kv_lens.size();
  for (int64_t b = 0; b < batch; ++b) {
    const auto pages = pages_.begin() + b * pages_each;
    std::copy_n(pages, pages_each, page_table.begin() + b * static_cast<int64_t>(max_pages));
    ids[b] = static_cast<int32_t>((1 + 977 * b) % model_.config().vocab_size);
    positions[b] = static_cast<int32_t>(context);
    slots[b] = static_cast<int32_t>(pages[context / page_size] * page_size + context % page_size);
    kv_lens[b] = static_cast<int32_t>(context + 1);
    query_starts[b] = static_cast<int32_t>(b);
    last_rows[b] = static_cast<int32_t>(b);
    inputs.host<float>("temperature")[b] = 0;
    inputs.host<int32_t>("top_k")[b] = 0;
    inputs.host<float>("top_p")[b] = 1;
    inputs.host<float>("min_p")[b] = 0;
    inputs.host<int64_t>("seed")[b] = 0;
  }
  query_starts[batch] = static_cast<int32_t>(batch);
  return choice;
}

SingleStep time_single_steps(FilledKv& kv, int64_t batch, int64_t context) {
  runtime::Executor& executor = kv.executor();
  const auto began = executor.device().create_event();
  const auto ended = executor.device().create_event();
  std::vector<double> enqueue_us;
  std::vector<double> device_us;
  for (int i = 0; i < kSingleSteps; ++i) {
    kv.begin(batch, context);
    executor.stream().record(*began);
    const double start = now_seconds();
    executor.launch({1, context + 1});
    enqueue_us.push_back((now_seconds() - start) * 1e6);
    executor.stream().record(*ended);
    executor.synchronize();
    device_us.push_back(ended->milliseconds_since(*began) * 1e3);
  }
  return {median(enqueue_us), median(device_us)};
}

}  // namespace encore::cli
