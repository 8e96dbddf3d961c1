#include "server/scripted_generator.h"

#include <algorithm>
#include <limits>

#include "base/json.h"

namespace encore::server {

using engine::EndReason;
using engine::Refusal;
using engine::RefusalKind;

Script Script::load(const std::filesystem::path& path) {
  Script script;
  try {
    const json::value value = json::parse_file(path);
    const json::Object object(value, path.string());
    script.token_time = std::chrono::milliseconds(object.int_or("token_ms", 0));
    for (const json::value& item : object.array_at("answers")) {
      const json::Object answer(item, path.string() + ": an answer");
      script.answers.push_back({answer.string_or("when", ""), answer.string_at("text")});
    }
  } catch (const Error& error) {
    fail(ErrorKind::kUsage, "{}", error.what());
  }
  return script;
}

namespace {

// Tokens that are due within this time of each other are delivered together, so that the
// generator's thread wakes less often when there are many requests.
constexpr auto kTogether = std::chrono::milliseconds(1);

}  // namespace

ScriptedGenerator::ScriptedGenerator(Script script, const text::Tokenizer& tokenizer,
                                     int32_t end_token, const Limits& limits)
    : script_(std::move(script)), tokenizer_(tokenizer), end_token_(end_token), limits_(limits) {}

void ScriptedGenerator::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wakes_.wait(lock, [&] { return !live_.empty() || state_ != State::kOpen; });
    if (live_.empty()) return;
    const std::vector<Call> calls = step(Clock::now() + kTogether);
    lock.unlock();
    for (const Call& call : calls)
      call.sink({call.tokens, call.ending});
    lock.lock();
    while (state_ != State::kStopped && !due_.empty() && due_.begin()->first > Clock::now()) {
      // The time is copied, because the request that is due first may be aborted during the wait.
      const Clock::time_point first = due_.begin()->first;
      wakes_.wait_until(lock, first);
    }
  }
}

std::vector<ScriptedGenerator::Call> ScriptedGenerator::step(Clock::time_point until) {
  const auto end = state_ == State::kStopped
                       ? due_.end()
                       : due_.upper_bound({until, std::numeric_limits<engine::RequestId>::max()});
  const std::vector<std::pair<Clock::time_point, engine::RequestId>> now(due_.begin(), end);
  due_.erase(due_.begin(), end);
  std::vector<Call> calls;
  for (const auto& [due, id] : now) {
    Live& live = live_.at(id);
    calls.push_back(next(live));
    if (calls.back().ending) {
      ++counts_.ended.at(static_cast<size_t>(calls.back().ending->reason));
      live_.erase(id);
    } else {
      live.due += script_.token_time;
      due_.emplace(live.due, id);
    }
  }
  return calls;
}

ScriptedGenerator::Call ScriptedGenerator::next(Live& live) {
  Call call{live.sink, {}, std::nullopt};
  if (state_ == State::kStopped || live.due == Clock::time_point::min()) {
    call.ending = engine::Ending{EndReason::kAborted, ""};
    return call;
  }
  const int32_t token = live.tokens[live.num_given++ % std::ssize(live.tokens)];
  const auto& stops = live.request.stop_tokens;
  call.tokens = {token};
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    call.ending = engine::Ending{EndReason::kStop, ""};
  } else if (live.num_given == live.request.max_tokens) {
    call.ending = engine::Ending{EndReason::kLength, ""};
  }
  ++counts_.generated_tokens;
  return call;
}

std::vector<int32_t> ScriptedGenerator::answer_to(const engine::Request& request) const {
  const std::string prompt = tokenizer_.decode(request.prompt);
  const auto answer = std::find_if(
      script_.answers.begin(), script_.answers.end(),
      [&](const Script::Answer& one) { return prompt.find(one.when) != std::string::npos; });
  std::vector<int32_t> tokens;
  if (answer != script_.answers.end()) tokens = tokenizer_.encode(answer->text, false);
  tokens.push_back(end_token_);
  return tokens;
}

std::variant<std::vector<engine::RequestId>, Refusal> ScriptedGenerator::submit(
    std::vector<engine::Submission> submissions) {
  std::vector<std::vector<int32_t>> answers;
  for (const engine::Submission& submission : submissions) {
    const engine::Request& request = submission.request;
    if (std::ssize(request.prompt) + request.max_tokens > limits_.max_seq_len)
      return Refusal{RefusalKind::kInvalid, "the request is too long"};
    answers.push_back(answer_to(request));
  }
  std::vector<engine::RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    if (auto refused = refusal()) return *std::move(refused);
    if (std::ssize(live_) + std::ssize(submissions) > limits_.capacity)
      return Refusal{RefusalKind::kQueueFull, "all places are taken"};
    for (size_t i = 0; i < submissions.size(); ++i) {
      ids.push_back(next_id_++);
      counts_.prompt_tokens += std::ssize(submissions[i].request.prompt);
      const auto now = Clock::now();
      live_[ids.back()] = {.request = std::move(submissions[i].request),
                           .sink = std::move(submissions[i].sink),
                           .tokens = std::move(answers[i]),
                           .due = now};
      due_.emplace(now, ids.back());
    }
  }
  wakes_.notify_one();
  return ids;
}

void ScriptedGenerator::abort(engine::RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(id);
    if (found == live_.end()) return;
    due_.erase({found->second.due, id});
    found->second.due = Clock::time_point::min();
    due_.emplace(found->second.due, id);
  }
  wakes_.notify_one();
}

void ScriptedGenerator::drain() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOpen) state_ = State::kDraining;
  }
  wakes_.notify_one();
}

void ScriptedGenerator::stop() {
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kStopped;
  }
  wakes_.notify_one();
}

engine::GeneratorStatistics ScriptedGenerator::statistics() const {
  const std::lock_guard lock(mutex_);
  engine::GeneratorStatistics statistics = counts_;
  statistics.num_running = std::ssize(live_);
  return statistics;
}

std::optional<Refusal> ScriptedGenerator::refusal() const {
  if (state_ == State::kStopped) return Refusal{RefusalKind::kStopped, "the server has ended"};
  if (state_ == State::kDraining) return Refusal{RefusalKind::kDraining, "the server is ending"};
  return std::nullopt;
}

std::optional<Refusal> ScriptedGenerator::closed() const {
  const std::lock_guard lock(mutex_);
  return refusal();
}

void ScriptedGenerator::sleep(engine::SleepDepth /*depth*/, engine::Done done) {
  done(Refusal{RefusalKind::kInvalid, "a scripted model has no memory to give back"});
}

std::optional<engine::Refusal> ScriptedGenerator::load_adapter(const std::string& /*name*/,
                                                               const std::string& /*path*/,
                                                               bool /*replaces*/) {
  return engine::Refusal{engine::RefusalKind::kInvalid, "a script has no adapters"};
}

std::optional<engine::Refusal> ScriptedGenerator::unload_adapter(const std::string& name) {
  return load_adapter(name, "", false);
}

void ScriptedGenerator::wake(engine::Done done) {
  done(Refusal{RefusalKind::kInvalid, "a scripted model does not sleep"});
}

}  // namespace encore::server
