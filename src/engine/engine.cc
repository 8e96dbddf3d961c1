#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "engine/input_writer.h"

namespace encore::engine {
namespace {

// How long the tokens of a burst may lie unread: what nobody who reads along minds.
constexpr auto kBetweenLooks = std::chrono::milliseconds(25);

sched::SchedulerLimits scheduler_limits(const runtime::Limits& limits) {
  return {limits.max_num_tokens, limits.max_batch_size, limits.max_mixed_tokens, limits.max_q};
}

}  // namespace

std::string_view name(Finish finish) {
  return finish == Finish::kStop ? "stop" : "length";
}

Engine::Engine(LoadedModel& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      overlaps_(options.overlap.value_or(model.executor().device().kind() != DeviceKind::kCpu)),
      pool_(model.num_pages(), model.page_size()),
      scheduler_(pool_, scheduler_limits(model.limits())) {}

Engine::~Engine() {
  interrupt_burst();
  try {
    while (!flights_.empty() && flights_.back().is_burst)
      land();
  } catch (const Error&) {  // a device that failed has told whoever called step()
  }
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
  sequences_.emplace(id, Sequence{.num_tokens = length,
                                  .max_tokens = longest,
                                  .stop_tokens = std::move(request.stop_tokens),
                                  .sampling = request.sampling,
                                  .prompt = std::move(request.prompt)});
  interrupt_burst();
  return id;
}

void Engine::end(SequenceId id) {
  if (sequences_.erase(id) > 0) scheduler_.remove(id);
}

void Engine::abort(SequenceId id) {
  end(id);
  std::erase_if(undelivered_, [&](const Generated& generated) { return generated.sequence == id; });
}

bool Engine::step(const std::function<void(const Generated&)>& on_token) {
  if (model_.asleep()) {
    fail(ErrorKind::kUsage, "a step while the model is asleep: wake it first");
  }
  if (undelivered_.empty()) {
    const bool launched = launch();
    if (flights_.empty()) return false;
    const size_t in_flight = launched && (overlaps_ || flights_.back().is_burst) ? 1 : 0;
    if (flights_.size() > in_flight) land();
  }
  while (!undelivered_.empty()) {
    const Generated generated = undelivered_.front();
    undelivered_.pop_front();
    on_token(generated);
  }
  return true;
}

bool Engine::launch() {
  if (!flights_.empty() && flights_.back().is_burst) return false;
  const auto start = std::chrono::steady_clock::now();
  sched::Plan plan = scheduler_.plan();
  if (plan.runs.empty()) return false;
  runtime::Executor& executor = model_.executor();
  const bool goes_on = proceeds(plan);
  if (!goes_on) {
    executor.begin({plan.num_tokens(), static_cast<int64_t>(plan.runs.size()),
                    plan.uniform_q(model_.limits().max_q)});
    pack(plan);
  }
  Flight flight{plan, executor.choice(), executor.next_step()};
  flight.is_burst = may_burst(plan);
  if (options_.step_log != nullptr) {
    flight.began = executor.device().create_event();
    executor.stream().record(*flight.began);
  }
  if (flight.is_burst) {
    const runtime::StepNumber end = burst_end(flight);
    goes_on ? executor.proceed_burst(end) : executor.launch_burst(end);
  } else {
    runtime::StepLengths lengths;
    for (const sched::Run& run : plan.runs) {
      lengths.max_query_len = std::max(lengths.max_query_len, run.count);
      lengths.max_kv_len = std::max(lengths.max_kv_len, run.first + run.count);
    }
    goes_on ? executor.proceed(lengths) : executor.launch(lengths);
  }
  if (options_.step_log != nullptr || flight.is_burst) {
    flight.ended = executor.device().create_event();
    executor.stream().record(*flight.ended);
  }
  scheduler_.commit(plan);
  launched_ = std::move(plan);
  after_launched_ = executor.next_step();
  const std::chrono::duration<double, std::micro> host = std::chrono::steady_clock::now() - start;
  flight.host_us = host.count();
  flights_.push_back(std::move(flight));
  return true;
}

bool Engine::proceeds(const sched::Plan& plan) const {
  runtime::Executor& executor = model_.executor();
  return executor.next_step() == after_launched_ && executor.choice().q == 1 &&
         std::equal(
             plan.runs.begin(), plan.runs.end(), launched_.runs.begin(), launched_.runs.end(),
             [](const sched::Run& now, const sched::Run& before) {
               return now == sched::Run{before.sequence, before.first + 1, 1} && before.count == 1;
             });
}

bool Engine::may_burst(const sched::Plan& plan) const {
  if (options_.burst_steps <= 1 || scheduler_.num_waiting() > 0 || !model_.executor().has_burst()) {
    return false;
  }
  int64_t most = 0;  // steps that any sequence may still take
  for (const sched::Run& run : plan.runs) {
    const auto& stops = sequences_.at(run.sequence).stop_tokens;
    if (std::ssize(stops) > model::kMaxStopTokens) return false;
    most = std::max(most, scheduler_.counts(run.sequence).max_tokens - run.first - 1);
  }
  return most >= runtime::Recordings::kStepsPerIteration;
}

void Engine::pack(const sched::Plan& plan) {
  InputWriter writer(model_.executor().inputs(), model_.page_size());
  int32_t row = 0;
  for (const sched::Run& run : plan.runs) {
    Sequence& sequence = sequences_.at(run.sequence);
    StepRows rows{{},
                  run.first,
                  scheduler_.counts(run.sequence).pages,
                  sequence.sampling,
                  sequence.stop_tokens,
                  sequence.max_tokens};
    const int32_t under_way = model::last_token_of(std::exchange(sequence.row, row++));
    if (run.first < std::ssize(sequence.prompt)) {
      rows.ids = std::span(sequence.prompt).subspan(run.first, run.count);
    } else {
      rows.ids = {run.first < sequence.num_tokens ? &sequence.last_token : &under_way, 1};
    }
    writer.add(rows);
  }
}

void Engine::land() {
  if (flights_.front().is_burst) return land_burst();
  const Flight& oldest = flights_.front();
  const bool is_last = flights_.size() == 1;
  model_.executor().wait_published(
      {.number = oldest.first, .choice = oldest.choice, .is_last = is_last});
  read_step();
  if (options_.step_log != nullptr) log(oldest);
  flights_.pop_front();
}

void Engine::land_burst() {
  runtime::Executor& executor = model_.executor();
  const Flight& burst = flights_.front();
  const auto first = burst.first + static_cast<runtime::StepNumber>(burst.num_read);
  const int64_t num_steps = steps_per_look(burst);
  const runtime::StepNumber end =
      executor.wait_published({.number = first + static_cast<runtime::StepNumber>(num_steps - 1),
                               .choice = burst.choice,
                               .num_steps = num_steps,
                               .end = burst.ended.get()});
  for (auto step = first; runtime::is_before(step, end); ++step)
    read_step();
  if (runtime::is_before(first, end)) {
    if (!burst.is_interrupted) executor.ring().run_until(burst_end(burst));
    return;
  }
  executor.end_burst();
  for (sched::Run& run : launched_.runs)
    run.first += burst.num_read - 1;
  after_launched_ = executor.next_step();
  flights_.pop_front();
}

int64_t Engine::steps_ahead() const {
  return std::min(options_.burst_steps, model_.executor().ring().capacity() / 2);
}

runtime::StepNumber Engine::burst_end(const Flight& burst) const {
  return burst.first + static_cast<runtime::StepNumber>(burst.num_read + steps_ahead());
}

// No more than some sequence may still take: what ends before nobody would see.
int64_t Engine::steps_per_look(const Flight& burst) const {
  if (burst.is_interrupted) return 1;
  int64_t most = 0;
  for (const auto& [id, sequence] : sequences_)
    most = std::max(most, sequence.max_tokens - sequence.num_tokens);
  const int64_t in_time = model_.executor().steps_in(burst.choice, kBetweenLooks);
  return std::max<int64_t>(1, std::min({in_time, steps_ahead() / 4, most}));
}

void Engine::interrupt_burst() {
  if (flights_.empty() || !flights_.back().is_burst) return;
  flights_.back().is_interrupted = true;
  runtime::TokenRing& ring = model_.executor().ring();
  ring.run_until(ring.published());
}

void Engine::read_step() {
  Flight& flight = flights_.front();
  plan_ = flight.plan;
  for (sched::Run& run : plan_.runs)
    run.first += flight.num_read;
  if (flight.num_read > 0) scheduler_.commit(plan_);
  const auto next = model_.executor().ring().tokens(
      flight.first + static_cast<runtime::StepNumber>(flight.num_read));
  ++flight.num_read;
  count(flight.choice);
  auto place = sequences_.begin();  // of the next run, where all of them take part
  for (size_t b = 0; b < plan_.runs.size(); ++b) {
    const sched::Run& run = plan_.runs[b];
    if (place == sequences_.end() || place->first != run.sequence)
      place = sequences_.find(run.sequence);
    if (place == sequences_.end()) continue;  // it ended while this step ran
    Sequence& sequence = (place++)->second;
    if (run.first + run.count < sequence.num_tokens) continue;  // an unfinished prompt
    Generated generated{run.sequence, next[b], std::nullopt};
    const auto& stops = sequence.stop_tokens;
    sequence.last_token = next[b];
    ++sequence.num_tokens;
    if (std::find(stops.begin(), stops.end(), next[b]) != stops.end()) {
      generated.finish = Finish::kStop;
    } else if (sequence.num_tokens == sequence.max_tokens) {
      generated.finish = Finish::kLength;
    }
    if (generated.finish) {
      scheduler_.remove(run.sequence);
      place = sequences_.erase(place - 1);
    }
    undelivered_.push_back(generated);
  }
}

// The step has run, so both events have their times.
void Engine::log(const Flight& flight) {
  flight.ended->synchronize();
  const runtime::Choice& choice = flight.choice;
  runtime::LoggedStep step;
  for (const sched::Run& run : flight.plan.runs) {
    const bool generates = choice.q > 0 || run.count == 1;
    (generates ? step.generation_requests : step.context_tokens) += generates ? 1 : run.count;
  }
  step.tokens = flight.plan.num_tokens();
  step.mode = name(choice.mode);
  // What runs unpadded has no bucket.
  const runtime::Coverage& coverage = model_.executor().coverage();
  const runtime::Ladder& ladder = choice.q > 0 ? coverage.sequences : coverage.tokens;
  const int64_t launched = choice.q > 0 ? choice.padded.sequences : choice.padded.tokens;
  if (ladder.bucket(launched) == launched) step.bucket = launched;
  step.padding = choice.padding;
  step.reason = name(choice.reason);
  step.host_us = flight.host_us;
  step.gpu_us = flight.ended->milliseconds_since(*flight.began) * 1e3;
  options_.step_log->write(std::move(step));
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
