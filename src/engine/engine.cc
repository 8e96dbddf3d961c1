#include "engine/engine.h"

#include <algorithm>
#include <chrono>

namespace encore::engine {
namespace {

sched::SchedulerLimits scheduler_limits(const runtime::Limits& limits) {
  return {limits.max_num_tokens, limits.max_batch_size, limits.max_mixed_tokens, limits.max_q};
}

// Pages first, so that a token's slot is a division away.
int32_t slot_of(const sched::Counts& counts, int64_t position, int64_t page_size) {
  return static_cast<int32_t>(counts.pages[position / page_size] * page_size +
                              position % page_size);
}

}  // namespace

std::string_view name(Finish finish) {
  return finish == Finish::kStop ? "stop" : "length";
}

Engine::Engine(LoadedModel& model, runtime::StepLogWriter* step_log)
    : model_(model),
      step_log_(step_log),
      pool_(model.num_pages(), model.page_size()),
      scheduler_(pool_, scheduler_limits(model.limits())) {
  if (step_log_ == nullptr) return;
  launch_began_ = model.executor().device().create_event();
  launch_ended_ = model.executor().device().create_event();
}

std::variant<SequenceId, Rejection> Engine::add(Request request) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  const int64_t vocab = model_.config().vocab_size;
  if (length == 0) return Rejection{"the prompt is empty"};
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= vocab) {
      return Rejection{fmt::format("token {} is outside the vocabulary of {}", token, vocab)};
    }
  }
  if (request.max_tokens < 1) return Rejection{"max_tokens is at least 1"};
  if (auto problem = sample::problem(request.sampling)) return Rejection{*problem};
  const int64_t longest = length + request.max_tokens;
  if (longest > model_.limits().max_seq_len) {
    return Rejection{
        fmt::format("{} prompt tokens and {} to generate are more than the {} of one sequence",
                    length, request.max_tokens, model_.limits().max_seq_len)};
  }
  const SequenceId id = next_id_;
  if (!scheduler_.add(id, length, longest)) {
    return Rejection{fmt::format("{} tokens do not fit the KV pool of {}: raise --kv-tokens",
                                 longest, pool_.num_pages() * pool_.page_size())};
  }
  ++next_id_;
  Sequence sequence{std::move(request), {}, 0};
  sequence.tokens = sequence.request.prompt;
  sequences_.emplace(id, std::move(sequence));
  return id;
}

void Engine::abort(SequenceId id) {
  if (sequences_.erase(id) > 0) scheduler_.remove(id);
}

bool Engine::step(const std::function<void(const Generated&)>& on_token) {
  if (model_.asleep()) {
    fail(ErrorKind::kUsage, "a step while the model is asleep: wake it first");
  }
  const auto start = std::chrono::steady_clock::now();
  plan_ = scheduler_.plan();
  if (plan_.runs.empty()) return false;
  runtime::Executor& executor = model_.executor();
  const runtime::Choice choice =
      executor.begin({plan_.num_tokens(), static_cast<int64_t>(plan_.runs.size()),
                      plan_.uniform_q(model_.limits().max_q)});
  count(choice);
  pack();
  runtime::StepLengths lengths;
  for (const sched::Run& run : plan_.runs) {
    lengths.max_query_len = std::max(lengths.max_query_len, run.count);
    lengths.max_kv_len = std::max(lengths.max_kv_len, run.first + run.count);
  }
  if (step_log_ != nullptr) executor.stream().record(*launch_began_);
  executor.launch(lengths);
  if (step_log_ != nullptr) executor.stream().record(*launch_ended_);
  const std::chrono::duration<double, std::micro> host = std::chrono::steady_clock::now() - start;
  commit(on_token);
  if (step_log_ != nullptr) log(choice, host.count());
  return true;
}

// The step has been waited for, so both events have their times.
void Engine::log(const runtime::Choice& choice, double host_us) {
  runtime::LoggedStep step;
  for (const sched::Run& run : plan_.runs) {
    const bool generates = choice.q > 0 || run.count == 1;
    (generates ? step.generation_requests : step.context_tokens) += generates ? 1 : run.count;
  }
  step.tokens = plan_.num_tokens();
  step.mode = name(choice.mode);
  // What runs unpadded has no bucket.
  const runtime::Coverage& coverage = model_.executor().coverage();
  const runtime::Ladder& ladder = choice.q > 0 ? coverage.sequences : coverage.tokens;
  const int64_t launched = choice.q > 0 ? choice.padded.sequences : choice.padded.tokens;
  if (ladder.bucket(launched) == launched) step.bucket = launched;
  step.padding = choice.padding;
  step.reason = name(choice.reason);
  step.host_us = host_us;
  step.gpu_us = launch_ended_->milliseconds_since(*launch_began_) * 1e3;
  step_log_->write(std::move(step));
}

// Writes the real rows of every step input; see model/graph.h for what each holds.
void Engine::pack() {
  runtime::StepInputs& inputs = model_.executor().inputs();
  const auto ids = inputs.host<int32_t>("ids");
  const auto positions = inputs.host<int32_t>("positions");
  const auto slots = inputs.host<int32_t>("slots");
  const auto page_table = inputs.host<int32_t>("page_table");
  const auto kv_lens = inputs.host<int32_t>("kv_lens");
  const auto query_starts = inputs.host<int32_t>("query_starts");
  const auto last_rows = inputs.host<int32_t>("last_rows");
  const auto temperature = inputs.host<float>("temperature");
  const auto top_k = inputs.host<int32_t>("top_k");
  const auto top_p = inputs.host<float>("top_p");
  const auto min_p = inputs.host<float>("min_p");
  const auto seed = inputs.host<int64_t>("seed");
  const size_t max_pages = page_table.size() / kv_lens.size();

  int32_t row = 0;
  for (size_t b = 0; b < plan_.runs.size(); ++b) {
    const sched::Run& run = plan_.runs[b];
    const sched::Counts& counts = scheduler_.counts(run.sequence);
    const Sequence& sequence = sequences_.at(run.sequence);
    query_starts[b] = row;
    for (int64_t position = run.first; position < run.first + run.count; ++position, ++row) {
      ids[row] = sequence.tokens[position];
      positions[row] = static_cast<int32_t>(position);
      slots[row] = slot_of(counts, position, model_.page_size());
    }
    std::copy(counts.pages.begin(), counts.pages.end(), page_table.begin() + b * max_pages);
    kv_lens[b] = static_cast<int32_t>(run.first + run.count);
    last_rows[b] = row - 1;
    const sample::SamplingParams& sampling = sequence.request.sampling;
    temperature[b] = sampling.temperature;
    top_k[b] = sampling.top_k;
    top_p[b] = sampling.top_p;
    min_p[b] = sampling.min_p;
    seed[b] = sampling.seed;
  }
  query_starts[plan_.runs.size()] = row;
}

void Engine::commit(const std::function<void(const Generated&)>& on_token) {
  std::vector<int32_t> next(plan_.runs.size());
  model_.executor().read_output(0, next.data(),
                                static_cast<int64_t>(next.size() * sizeof(int32_t)));
  scheduler_.commit(plan_);
  for (size_t b = 0; b < plan_.runs.size(); ++b) {
    const SequenceId id = plan_.runs[b].sequence;
    const sched::Counts& counts = scheduler_.counts(id);
    if (counts.num_computed < counts.num_tokens) continue;  // an unfinished prompt yields no token
    Sequence& sequence = sequences_.at(id);
    Generated generated{id, next[b], std::nullopt};
    const auto& stops = sequence.request.stop_tokens;
    sequence.tokens.push_back(next[b]);
    ++sequence.num_generated;
    if (std::find(stops.begin(), stops.end(), next[b]) != stops.end()) {
      generated.finish = Finish::kStop;
    } else if (sequence.num_generated == sequence.request.max_tokens) {
      generated.finish = Finish::kLength;
    }
    if (generated.finish) {
      abort(id);
    } else {
      scheduler_.append(id);
    }
    on_token(generated);
  }
}

void Engine::count(const runtime::Choice& choice) {
  StepCount& count = counts_[{choice.mode, choice.padded.tokens, choice.padded.sequences, choice.q,
                              choice.reason}];
  count.mode = choice.mode;
  count.bucket = choice.padded;
  count.q = choice.q;
  count.reason = choice.reason;
  ++count.steps;
  count.tokens += plan_.num_tokens();
  count.padding += choice.padding;
}

std::vector<StepCount> Engine::step_counts() const {
  std::vector<StepCount> counts;
  for (const auto& [key, count] : counts_)
    counts.push_back(count);
  return counts;
}

}  // namespace encore::engine
