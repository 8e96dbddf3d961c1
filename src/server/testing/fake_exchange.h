// Plays both the client and the model of a server in tests, without sockets.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/generator.h"
#include "server/http.h"

namespace encore::server::testing {

// The part of an answer that the client of one request has received so far.
struct Exchange {
  int status = 0;
  Headers headers;
  std::string body;
  bool has_ended = false;
  bool is_closed = false;  // the connection was closed before an answer, or by leave()
  std::function<void()> closed_call;

  // Simulates that the client leaves.
  void leave() {
    is_closed = true;
    if (const auto call = std::exchange(closed_call, nullptr)) call();
  }
  [[nodiscard]] std::string header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return "";
  }
};

class FakeResponder final : public Responder {
 public:
  // `exchange` is shared with the test, which still reads it after the responder is destroyed.
  explicit FakeResponder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~FakeResponder() override {
    if (!exchange_->has_ended) exchange_->is_closed = true;
  }

  void respond(HttpResponse response) override {
    begin_stream(response);
    exchange_->body = std::move(response.body);
    exchange_->has_ended = true;
  }
  void begin_stream(HttpResponse head) override {
    exchange_->status = head.status;
    exchange_->headers = std::move(head.headers);
  }
  void write(std::string_view part) override { exchange_->body += part; }
  void end_stream() override { exchange_->has_ended = true; }
  void on_closed(std::function<void()> call) override {
    if (exchange_->is_closed) return call();
    exchange_->closed_call = std::move(call);
  }

 private:
  std::shared_ptr<Exchange> exchange_;
};

// A generator that delivers the tokens and endings that a test names, when the test asks for it.
class FakeGenerator final : public engine::Generator {
 public:
  std::variant<std::vector<engine::RequestId>, engine::Refusal> submit(
      std::vector<engine::Submission> submissions) override {
    if (refusal) return *refusal;
    std::vector<engine::RequestId> ids;
    for (engine::Submission& submission : submissions) {
      ids.push_back(next_id_++);
      requests.push_back(submission.request);
      live[ids.back()] = std::move(submission.sink);
    }
    return ids;
  }
  void run() override {}
  void drain() override {}
  void stop() override {}
  void abort(engine::RequestId id) override { aborted.push_back(id); }
  [[nodiscard]] int64_t capacity() const override { return 256; }
  [[nodiscard]] engine::GeneratorStatistics statistics() const override { return {}; }
  [[nodiscard]] std::optional<engine::Refusal> closed() const override { return refusal; }
  void sleep(engine::SleepDepth depth, engine::Done done) override {
    asked.push_back({depth, std::move(done)});
  }
  void wake(engine::Done done) override { asked.push_back({std::nullopt, std::move(done)}); }
  std::optional<engine::Refusal> load_adapter(const std::string& name, const std::string& path,
                                              bool replaces) override {
    adapters.push_back(fmt::format("{}={}{}", name, path, replaces ? ", replaced" : ""));
    return adapter_refusal;
  }
  std::optional<engine::Refusal> unload_adapter(const std::string& name) override {
    adapters.push_back(name);
    return adapter_refusal;
  }

  void give(engine::RequestId id, const std::vector<int32_t>& tokens,
            const std::vector<LogprobRow>& logprobs = {},
            const std::vector<LogprobRow>& prompt_logprobs = {}) {
    live.at(id)({.tokens = tokens, .logprobs = logprobs, .prompt_logprobs = prompt_logprobs});
  }
  void end(engine::RequestId id, engine::EndReason reason, const std::vector<int32_t>& tokens = {},
           std::string message = "") {
    const engine::Sink sink = std::move(live.extract(id).mapped());
    sink({tokens, engine::Ending{reason, std::move(message)}});
  }

  std::optional<engine::Refusal> refusal;
  std::optional<engine::Refusal> adapter_refusal;
  // Names of the adapters that were loaded and unloaded, in order.
  std::vector<std::string> adapters;
  std::vector<engine::Request> requests;
  std::map<engine::RequestId, engine::Sink> live;
  std::vector<engine::RequestId> aborted;
  struct Asked {
    std::optional<engine::SleepDepth> depth;  // absent in a request to wake
    engine::Done done;
  };
  std::vector<Asked> asked;

 private:
  engine::RequestId next_id_ = 1;
};

}  // namespace encore::server::testing
