#include "server/scripted_generator.h"

#include <algorithm>

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

ScriptedGenerator::ScriptedGenerator(Script script, const text::Tokenizer& tokenizer,
                                     int32_t end_token, const Limits& limits)
    : script_(std::move(script)), tokenizer_(tokenizer), end_token_(end_token), limits_(limits) {}

void ScriptedGenerator::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wakes_.wait(lock, [&] { return !live_.empty() || state_ != State::kOpen; });
    if (live_.empty()) return;
    const std::vector<Call> calls = step();
    lock.unlock();
    for (const Call& call : calls)
      call.sink({call.tokens, call.ending});
    lock.lock();
    // Somebody who leaves, and the end, need not wait for the next token.
    wakes_.wait_for(lock, script_.token_time, [&] {
      return state_ == State::kStopped ||
             std::any_of(live_.begin(), live_.end(),
                         [](const auto& entry) { return entry.second.is_aborted; });
    });
  }
}

std::vector<ScriptedGenerator::Call> ScriptedGenerator::step() {
  std::vector<Call> calls;
  for (auto place = live_.begin(); place != live_.end();) {
    Live& live = place->second;
    Call call{live.sink, {}, std::nullopt};
    if (live.is_aborted || state_ == State::kStopped) {
      call.ending = engine::Ending{EndReason::kAborted, ""};
    } else {
      const int32_t token = live.tokens[live.num_given++ % std::ssize(live.tokens)];
      const auto& stops = live.request.stop_tokens;
      call.tokens = {token};
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
        call.ending = engine::Ending{EndReason::kStop, ""};
      } else if (live.num_given == live.request.max_tokens) {
        call.ending = engine::Ending{EndReason::kLength, ""};
      }
      ++counts_.generated_tokens;
    }
    if (call.ending) ++counts_.ended.at(static_cast<size_t>(call.ending->reason));
    place = call.ending ? live_.erase(place) : std::next(place);
    calls.push_back(std::move(call));
  }
  return calls;
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
    if (state_ == State::kStopped) return Refusal{RefusalKind::kStopped, "the server has ended"};
    if (state_ == State::kDraining) return Refusal{RefusalKind::kDraining, "the server is ending"};
    if (std::ssize(live_) + std::ssize(submissions) > limits_.capacity)
      return Refusal{RefusalKind::kQueueFull, "all places are taken"};
    for (size_t i = 0; i < submissions.size(); ++i) {
      ids.push_back(next_id_++);
      counts_.prompt_tokens += std::ssize(submissions[i].request.prompt);
      live_[ids.back()] = {std::move(submissions[i].request), std::move(submissions[i].sink),
                           std::move(answers[i])};
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
    found->second.is_aborted = true;
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

bool ScriptedGenerator::is_open() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kOpen;
}

}  // namespace encore::server
