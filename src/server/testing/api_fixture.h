// Provides tests with an API server that has the bundled model's tokenizer. The generator is a
// FakeGenerator, so the test itself decides which tokens it generates.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/source_dir.h"
#include "base/testing/temp_dir.h"
#include "server/api_server.h"
#include "server/testing/fake_exchange.h"

namespace encore::server::testing {

class ApiTest : public ::testing::Test {
 protected:
  void start(ApiOptions options = {}) {
    ServedModel model;
    model.names = {"stories", "tales"};
    model.tokenizer = &tokenizer_;
    model.chat_template = &chat_template_;
    model.end_tokens = {*tokenizer_.eos_id()};
    model.vocab_size = tokenizer_.vocab_size();
    model.max_seq_len = 100;
    start(std::move(model), std::move(options));
  }
  // Starts a server with the chat template of a model that reasons and calls tools.
  void start_with_tools(const std::string& name = "qwen3", int64_t max_seq_len = 4096) {
    const auto dir =
        std::filesystem::path(ENCORE_SOURCE_DIR) / "src" / "text" / "testdata" / "chat_templates";
    chat_template_ = text::ChatTemplate::load(dir, dir / (name + ".jinja"));
    ServedModel model;
    model.names = {"stories"};
    model.tokenizer = &tokenizer_;
    model.chat_template = &chat_template_;
    model.end_tokens = {*tokenizer_.eos_id()};
    model.vocab_size = tokenizer_.vocab_size();
    model.max_seq_len = max_seq_len;
    start(std::move(model), {});
  }
  // Plays the model: gives this text to request `id`, one token at a time, and then ends the
  // request.
  void answer(engine::RequestId id, std::string_view text) {
    for (const int32_t token : ids(text))
      generator_.give(id, {token});
    generator_.end(id, engine::EndReason::kStop, {*tokenizer_.eos_id()});
    pump();
  }
  void start(ServedModel model, ApiOptions options) {
    api_.emplace(
        generator_, std::move(model), std::move(options),
        [this](std::function<void()> call) { post(std::move(call)); },
        Time{[this] { return now_; },
             [this](std::chrono::milliseconds delay, std::function<void()> call) {
               waiting_.emplace(now_ + delay, std::move(call));
             }});
  }
  void TearDown() override { api_.reset(); }
  void SetUp() override { start(); }

  std::shared_ptr<Exchange> send(std::string method, std::string path, std::string body = "",
                                 Headers headers = {}, std::string query = "") {
    auto exchange = std::make_shared<Exchange>();
    api_->handle({.method = std::move(method),
                  .path = std::move(path),
                  .query = std::move(query),
                  .headers = std::move(headers),
                  .body = std::move(body),
                  .arrived = now_},
                 std::make_unique<FakeResponder>(exchange));
    return exchange;
  }
  std::shared_ptr<Exchange> complete(std::string body) {
    return send("POST", "/v1/completions", std::move(body));
  }
  // Runs all functions that have been posted to the server's thread.
  void pump() {
    while (const auto call = take_posted(false))
      call();
  }
  // Waits until a function is posted to the server's thread, then runs all posted functions.
  void wait_and_pump() {
    take_posted(true)();
    pump();
  }
  // Advances the server's clock, which otherwise stands still, and runs the timers that are due by
  // then.
  void pass(std::chrono::milliseconds time) {
    now_ += time;
    while (!waiting_.empty() && waiting_.begin()->first <= now_)
      waiting_.extract(waiting_.begin()).mapped()();
  }
  std::vector<int32_t> ids(std::string_view text) const { return tokenizer_.encode(text, false); }

  // parsed() returns the body's JSON. events() returns the events of a stream, whose last one must
  // be [DONE]; this last event is left out.
  static json::value parsed(const Exchange& exchange) { return json::parse(exchange.body, "body"); }
  static std::vector<json::value> events(const Exchange& exchange) {
    std::vector<json::value> events;
    std::string_view rest = exchange.body;
    while (!rest.empty()) {
      const size_t end = rest.find("\n\n");
      EXPECT_TRUE(rest.starts_with("data: ") && end != std::string_view::npos) << rest;
      const std::string_view data = rest.substr(6, end - 6);
      rest.remove_prefix(end + 2);
      if (data == "[DONE]") {
        EXPECT_TRUE(rest.empty()) << rest;
        return events;
      }
      events.push_back(json::parse(data, "event"));
    }
    return events;
  }
  // Returns the events of a stream in which each event has a type. The event's data must name the
  // same type.
  static std::vector<json::value> typed_events(const Exchange& exchange) {
    std::vector<json::value> events;
    std::string_view rest = exchange.body;
    while (!rest.empty()) {
      const size_t line = rest.find("\ndata: ");
      const size_t end = rest.find("\n\n");
      EXPECT_TRUE(rest.starts_with("event: ") && line < end && end != std::string_view::npos)
          << rest;
      if (end == std::string_view::npos || line > end) break;
      events.push_back(json::parse(rest.substr(line + 7, end - line - 7), "event"));
      EXPECT_EQ(events.back().at("type"), json::value(rest.substr(7, line - 7)));
      rest.remove_prefix(end + 2);
    }
    return events;
  }
  static const json::value& error(const json::value& body) { return body.at("error"); }

  static std::filesystem::path bundled_model() {
    return std::filesystem::path(ENCORE_SOURCE_DIR) / "models" / "stories";
  }

  text::Tokenizer tokenizer_ = text::Tokenizer::load(bundled_model());
  static text::ChatTemplate short_template() {
    const TempDir dir;
    const auto file = dir.write("short.jinja",
                                "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                                "{% if add_generation_prompt %}assistant: {{ mood }}{% endif %}");
    return text::ChatTemplate::load(bundled_model(), file);
  }

  text::ChatTemplate chat_template_ = short_template();
  FakeGenerator generator_;
  std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::now();
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> waiting_;
  std::optional<ApiServer> api_;

 private:
  void post(std::function<void()> call) {
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(call));
    }
    posts_.notify_one();
  }
  // Removes and returns the next posted function. Waits for one if `waits`; otherwise returns null
  // if there is none.
  std::function<void()> take_posted(bool waits) {
    std::unique_lock lock(mutex_);
    if (waits) posts_.wait(lock, [&] { return !posted_.empty(); });
    if (posted_.empty()) return nullptr;
    std::function<void()> call = std::move(posted_.front());
    posted_.pop_front();
    return call;
  }

  std::mutex mutex_;
  std::condition_variable posts_;
  std::deque<std::function<void()>> posted_;
};

}  // namespace encore::server::testing
