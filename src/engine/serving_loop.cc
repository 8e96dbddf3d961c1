#include "engine/serving_loop.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace encore::engine {
namespace {

// A copy of the engine's step counts takes long, as it has an entry for each size of step. So they
// are published only a few times a second.
constexpr auto kBetweenStepCounts = std::chrono::milliseconds(250);

const Refusal kStoppedRefusal = {RefusalKind::kStopped, "the engine was stopped"};

Ending ending_of(const Generated& generated) {
  switch (*generated.finish) {
    case Finish::kStop:
      return {EndReason::kStop, ""};
    case Finish::kLength:
      return {EndReason::kLength, ""};
    case Finish::kSlowGrammar:
      return {EndReason::kGrammar,
              "the grammar of the answer takes too long to say which tokens may come: simplify it"};
    case Finish::kNoAdapter:
      return {EndReason::kError, generated.problem};
    case Finish::kDeadEnd:
      break;
  }
  return {EndReason::kGrammar,
          "the answer came to where no token may follow: its grammar asks for a text that this "
          "vocabulary cannot write, or a logit bias forbids it"};
}

}  // namespace

ServingLoop::ServingLoop(LoadedModel& model, const ServingOptions& options)
    : engine_(model, options.engine), capacity_(model.limits().max_batch_size + options.max_queue) {
  publish_statistics(0, true);
}

void ServingLoop::run() {
  const auto on_token = [&](const Generated& generated) {
    Live& live = *live_.at(generated.sequence);
    touch(live);
    if (generated.finish) live.ending = ending_of(generated);
    const bool is_failure = live.ending && (live.ending->reason == EndReason::kGrammar ||
                                            live.ending->reason == EndReason::kError);
    if (is_failure) return;
    live.tokens.push_back(generated.token);
    live.num_drafted += generated.was_drafted ? 1 : 0;
    if (!live.admitted) {
      live.num_cached = generated.num_cached;
      live.admitted = generated.admitted;
    }
    if (generated.logprobs) live.logprobs.push_back(*generated.logprobs);
    if (!generated.prompt_logprobs.empty()) live.prompt_logprobs = generated.prompt_logprobs;
  };
  try {
    bool is_busy = false;
    while (true) {
      const State state = wait_for_work(is_busy);
      receive_all();
      const bool sleeps = engine_.model().asleep();
      // A model that sleeps cannot be woken while the loop drains.
      const bool ends_all = state == State::kStopped || (state != State::kOpen && sleeps);
      if (ends_all) end_all({EndReason::kAborted, ""});
      deliver(sleeps);
      if (state != State::kOpen && live_.empty() && (sleeps || !is_busy)) return;
      // The wait ended because messages came, and the next step is not due yet. The loop waits on
      // for further messages, as their requests can take part in that step.
      const bool is_early =
          !engine_.device_rests() && HostTimes::Clock::now() < engine_.launch_time();
      if (is_busy && !sleeps && is_early && state == State::kOpen) continue;
      is_busy = !sleeps && engine_.step(on_token);
      if (!sleeps) deliver(!is_busy);
    }
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      state_ = State::kStopped;
      failure_ = error.what();
    }
    end_all({EndReason::kError, error.what()});
    deliver(true);
    throw;
  }
}

ServingLoop::State ServingLoop::wait_for_work(bool is_busy) {
  std::unique_lock lock(mutex_);
  const auto has_come = [&] { return !inbox_.empty() || state_ != State::kOpen; };
  if (is_busy) {
    // The step in flight may end early, and its end does not wake the host.
    const auto look = HostTimes::Clock::now() + runtime::StepWaiter::kBetweenLooks;
    wakes_.wait_until(lock, std::min(look, engine_.launch_time()), has_come);
  } else {
    wakes_.wait(lock, has_come);
  }
  received_.swap(inbox_);
  return state_;
}

void ServingLoop::receive_all() {
  for (; !received_.empty(); received_.pop_front())
    std::visit([&](auto& content) { receive(content); }, received_.front());
}

// The sink stays in the message until nothing can fail any more, so that a failure can still be
// reported to it.
void ServingLoop::receive(Submitted& submitted) {
  counts_.prompt_tokens += std::ssize(submitted.submission.request.prompt);
  auto live = std::make_unique<Live>();
  const auto added =
      engine_.add(std::move(submitted.submission.request), std::move(submitted.chain));
  // submit() has checked the request.
  ENCORE_CHECK(std::holds_alternative<SequenceId>(added));
  const SequenceId sequence = std::get<SequenceId>(added);
  sequences_[submitted.id] = sequence;
  live->id = submitted.id;
  live->sequence = sequence;
  Live& placed = *(live_[sequence] = std::move(live));
  placed.sink = std::move(submitted.submission.sink);
}

void ServingLoop::receive(const Aborted& aborted) {
  const auto found = sequences_.find(aborted.id);
  if (found == sequences_.end()) return;
  const SequenceId sequence = found->second;
  engine_.abort(sequence);
  Live& live = *live_.at(sequence);
  live.ending = Ending{EndReason::kAborted, ""};
  touch(live);
}

void ServingLoop::receive(SleepOrWake& change) {
  try {
    change.depth ? engine_.sleep(*change.depth) : engine_.wake();
  } catch (const std::exception& failure) {
    answer(change, Refusal{RefusalKind::kFailed, failure.what()});
    const auto* const error = dynamic_cast<const Error*>(&failure);
    if (error == nullptr || error->kind() == ErrorKind::kDevice) throw;
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_asleep_ = change.depth.has_value();
  }
  answer(change, std::nullopt);
}

void ServingLoop::answer(SleepOrWake& change, const std::optional<Refusal>& failure) {
  if (const Done done = std::exchange(change.done, nullptr)) done(failure);
}

void ServingLoop::touch(Live& live) {
  if (!std::exchange(live.is_touched, true)) touched_.push_back(&live);
}

void ServingLoop::deliver(bool is_idle) {
  const auto start = HostTimes::Clock::now();
  std::vector<std::unique_ptr<Live>> ended;
  for (const Live* live : touched_) {
    counts_.generated_tokens += std::ssize(live->tokens);
    if (!live->ending) continue;
    ++counts_.ended.at(static_cast<size_t>(live->ending->reason));
    sequences_.erase(live->id);
    const auto place = live_.find(live->sequence);
    ended.push_back(std::move(place->second));
    live_.erase(place);
  }
  if (!touched_.empty() || is_idle) publish_statistics(std::ssize(ended), is_idle);
  for (Live* live : touched_) {
    live->sink({.tokens = {live->tokens.data(), live->tokens.size()},
                .ending = live->ending,
                .num_cached = live->num_cached,
                .num_drafted = std::exchange(live->num_drafted, 0),
                .logprobs = live->logprobs,
                .prompt_logprobs = live->prompt_logprobs,
                .admitted = live->admitted,
                .at = start});
    live->tokens.clear();
    live->logprobs.clear();
    live->prompt_logprobs.clear();
    live->is_touched = false;
  }
  if (!touched_.empty()) engine_.host_times().add(HostWork::kDeliver, start);
  touched_.clear();
}

void ServingLoop::end_all(const Ending& ending) {
  {
    const std::lock_guard lock(mutex_);
    std::ranges::move(std::exchange(inbox_, {}), std::back_inserter(received_));
  }
  for (Message& message : std::exchange(received_, {})) {
    if (auto* change = std::get_if<SleepOrWake>(&message)) answer(*change, kStoppedRefusal);
    const auto* const submitted = std::get_if<Submitted>(&message);
    if (submitted == nullptr || !submitted->submission.sink) continue;
    ++counts_.ended.at(static_cast<size_t>(ending.reason));
    publish_statistics(1, false);
    submitted->submission.sink({.tokens = {}, .ending = ending, .at = HostTimes::Clock::now()});
  }
  for (auto& [sequence, live] : live_) {
    engine_.abort(sequence);
    if (!live->ending) live->ending = ending;
    touch(*live);
  }
}

void ServingLoop::publish_statistics(int64_t num_ended, bool is_idle) {
  const sched::Scheduler& scheduler = engine_.scheduler();
  counts_.num_running = scheduler.num_running();
  counts_.num_waiting = scheduler.num_waiting();
  counts_.num_preemptions = scheduler.num_preemptions();
  if (engine_.prefix_cache() != nullptr) counts_.prefix_cache = engine_.prefix_cache()->stats();
  counts_.num_pages = engine_.page_pool().num_pages();
  counts_.num_free_pages = engine_.page_pool().num_free();
  if (const kv::WindowGroup* window = engine_.window_group()) {
    counts_.num_window_pages = window->pool().num_pages();
    counts_.num_free_window_pages = window->pool().num_free();
  }
  const auto now = std::chrono::steady_clock::now();
  if (is_idle || now - steps_counted_at_ > kBetweenStepCounts) {
    counts_.coverage = engine_.model().executor().coverage();
    counts_.steps = engine_.step_counts();
    if (engine_.model().limits().num_drafts > 0) counts_.drafts = engine_.draft_counts();
    if (const loader::Adapters* adapters = engine_.model().adapters()) {
      counts_.adapters = adapters->stats();
      counts_.adapters_in_use = engine_.adapters_in_use();
    }
    counts_.host_times = engine_.host_times();
    counts_.recordings = engine_.model().recording_stats();
    counts_.num_tables = engine_.model().executor().loaded().tables.num_tables();
    steps_counted_at_ = now;
  }
  const std::lock_guard lock(mutex_);
  num_live_ -= num_ended;
  published_ = counts_;
}

void ServingLoop::drain() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kOpen) state_ = State::kDraining;
  wakes_.notify_one();
}

void ServingLoop::stop() {
  const std::lock_guard lock(mutex_);
  state_ = State::kStopped;
  wakes_.notify_one();
}

std::variant<std::vector<RequestId>, Refusal> ServingLoop::submit(
    std::vector<Submission> submissions) {
  for (Submission& submission : submissions) {
    submission.request.held_adapter = engine_.find_adapter(submission.request);
    if (auto rejection = engine_.check(submission.request))
      return Refusal{RefusalKind::kInvalid, std::move(rejection->why), rejection->reason};
  }
  const auto count = std::ssize(submissions);
  std::vector<kv::PageChain> chains = page_chains(submissions);
  std::vector<RequestId> ids;
  const std::lock_guard lock(mutex_);
  if (auto refused = refusal()) return *std::move(refused);
  if (num_live_ + count > capacity_) {
    return Refusal{
        RefusalKind::kQueueFull,
        fmt::format("{} of {} places are taken by other requests", num_live_, capacity_)};
  }
  num_live_ += count;
  for (size_t i = 0; i < submissions.size(); ++i) {
    ids.push_back(next_id_++);
    inbox_.emplace_back(Submitted{ids.back(), std::move(submissions[i]), std::move(chains[i])});
  }
  wakes_.notify_one();
  return ids;
}

std::vector<kv::PageChain> ServingLoop::page_chains(
    const std::vector<Submission>& submissions) const {
  std::vector<kv::PageChain> chains;
  const Request* hashed = nullptr;
  for (const Submission& submission : submissions) {
    const Request& request = submission.request;
    const bool is_copy = hashed != nullptr && hashed->prompt == request.prompt &&
                         hashed->cache_salt == request.cache_salt &&
                         hashed->held_adapter == request.held_adapter;
    chains.push_back(is_copy ? kv::PageChain(chains.back()) : engine_.page_chain(request));
    hashed = &request;
  }
  return chains;
}

void ServingLoop::abort(RequestId id) {
  const std::lock_guard lock(mutex_);
  inbox_.emplace_back(Aborted{id});
  wakes_.notify_one();
}

GeneratorStatistics ServingLoop::statistics() const {
  const std::lock_guard lock(mutex_);
  GeneratorStatistics statistics = published_;
  if (const kv::PrefixCache* cache = engine_.prefix_cache())
    // Threads that submit requests hash pages, too, so the cache counts hashed pages apart from its
    // other counts.
    statistics.prefix_cache.hashed_pages = cache->num_hashed();
  return statistics;
}

std::optional<Refusal> ServingLoop::refusal() const {
  if (!failure_.empty())
    return Refusal{RefusalKind::kStopped, fmt::format("the device failed: {}", failure_)};
  if (state_ == State::kStopped) return kStoppedRefusal;
  if (state_ == State::kDraining)
    return Refusal{RefusalKind::kDraining, "the server finishes its last requests and then ends"};
  if (is_asleep_) {
    return Refusal{RefusalKind::kAsleep,
                   "the model is asleep, and takes requests again once it was woken"};
  }
  return std::nullopt;
}

std::optional<Refusal> ServingLoop::closed() const {
  const std::lock_guard lock(mutex_);
  return refusal();
}

void ServingLoop::sleep(SleepDepth depth, Done done) {
  post({depth, std::move(done)});
}

void ServingLoop::wake(Done done) {
  post({std::nullopt, std::move(done)});
}

std::optional<Refusal> ServingLoop::load_adapter(const std::string& name, const std::string& path,
                                                 bool replaces) {
  return change_adapters([&](loader::Adapters& adapters) { adapters.load(name, path, replaces); });
}

std::optional<Refusal> ServingLoop::unload_adapter(const std::string& name) {
  return change_adapters([&](loader::Adapters& adapters) { adapters.unload(name); });
}

std::optional<Refusal> ServingLoop::change_adapters(
    const std::function<void(loader::Adapters&)>& change) {
  loader::Adapters* const adapters = engine_.model().adapters();
  if (adapters == nullptr) {
    return Refusal{RefusalKind::kInvalid,
                   "there is no room for adapters: start with --max-loras N, or with --lora"};
  }
  try {
    change(*adapters);
  } catch (const Error& error) {
    const bool is_theirs = error.kind() == ErrorKind::kUsage || error.kind() == ErrorKind::kModel ||
                           error.kind() == ErrorKind::kUnsupported;
    return Refusal{is_theirs ? RefusalKind::kInvalid : RefusalKind::kFailed, error.what()};
  }
  return std::nullopt;
}

void ServingLoop::post(SleepOrWake change) {
  std::unique_lock lock(mutex_);
  if (state_ == State::kOpen) {
    inbox_.emplace_back(std::move(change));
    wakes_.notify_one();
    return;
  }
  const std::optional<Refusal> refused = refusal();
  lock.unlock();  // unlocked before foreign code is called
  change.done(refused);
}

}  // namespace encore::engine
