#include <thread>

#include "server/api_fixture.h"

namespace encore::server {
namespace {

using std::chrono::milliseconds;

class DeadlineTest : public testing::ApiTest {
 protected:
  std::shared_ptr<testing::Exchange> ask(const std::string& more,
                                         const std::string& path = "/v1/completions") {
    return send("POST", path, R"({"prompt": "One day", "max_tokens": 9)" + more + "}");
  }
  std::string metric(const std::string& name) {
    const std::string text = send("GET", "/metrics")->body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? "" : text.substr(at + name.size() + 2, 1);
  }
};

TEST_F(DeadlineTest, ARequestWhoseTimePassesFailsAndIsAborted) {
  const auto late = ask(R"(, "timeout": 0.005)");
  const auto patient = ask(R"(, "timeout": 60)");
  const auto other = ask("");
  generator_.give(1, ids("a"));
  pump();
  std::this_thread::sleep_for(milliseconds(6));
  pass_delays();
  EXPECT_EQ(late->status, 504);
  EXPECT_EQ(error(parsed(*late)).at("code"), "request_timeout");
  EXPECT_EQ(error(parsed(*late)).at("type"), "server_error");
  EXPECT_EQ(generator_.aborted, std::vector<engine::RequestId>{1});
  EXPECT_EQ(metric("encore_requests_total{end=\"timed_out\"}"), "1");
  pass_delays();
  for (const engine::RequestId id : {2, 3})
    generator_.end(id, engine::EndReason::kLength, ids("b"));
  pump();
  EXPECT_EQ(patient->status, 200);
  EXPECT_EQ(other->status, 200);
  EXPECT_EQ(generator_.aborted.size(), 1U);
}

TEST_F(DeadlineTest, AStreamWhoseTimePassesEndsWithAnError) {
  const auto stream = ask(R"(, "timeout": 0.005, "stream": true, "n": 2)");
  generator_.give(1, ids("a"));
  pump();
  std::this_thread::sleep_for(milliseconds(6));
  pass_delays();
  EXPECT_EQ(stream->status, 200);
  EXPECT_TRUE(stream->has_ended);
  EXPECT_EQ(error(events(*stream).back()).at("code"), "request_timeout");
  EXPECT_EQ(generator_.aborted, (std::vector<engine::RequestId>{1, 2}));
  // What the engine still gives goes nowhere.
  const std::string body = stream->body;
  generator_.end(1, engine::EndReason::kAborted);
  generator_.end(2, engine::EndReason::kAborted, ids("b"));
  pump();
  EXPECT_EQ(stream->body, body);
}

TEST_F(DeadlineTest, TheNextDeadlineIsWaitedForHoweverTheyCome) {
  const auto later = ask(R"(, "timeout": 0.01)");
  const auto sooner = ask(R"(, "timeout": 0.002)");
  ASSERT_EQ(waiting_.size(), 2U);
  EXPECT_LE(waiting_[1].first, milliseconds(2));
  std::this_thread::sleep_for(milliseconds(3));
  waiting_[1].second();
  EXPECT_EQ(sooner->status, 504);
  EXPECT_EQ(later->status, 0);
  std::this_thread::sleep_for(milliseconds(8));
  pass_delays();
  EXPECT_EQ(later->status, 504);
  ask(R"(, "timeout": 50)");
  EXPECT_EQ(waiting_.size(), 1U);
}

TEST_F(DeadlineTest, TheServersTimeoutIsTheLongest) {
  start({.request_timeout = milliseconds(20)});
  for (const char* more : {"", R"(, "timeout": 5)", R"(, "timeout": 0.001)"})
    ask(more);
  ASSERT_EQ(waiting_.size(), 2U);  // the third is the sooner one
  EXPECT_GT(waiting_[0].first, milliseconds(10));
  EXPECT_LE(waiting_[0].first, milliseconds(20));
  EXPECT_LE(waiting_[1].first, milliseconds(1));
}

TEST_F(DeadlineTest, ARequestThatIsLateBeforeItBeginsIsNotBegun) {
  start({.request_timeout = milliseconds(1), .small_body_bytes = 1});
  const auto late = ask("");
  std::this_thread::sleep_for(milliseconds(2));
  wait_and_pump();
  EXPECT_EQ(late->status, 504);
  EXPECT_TRUE(generator_.requests.empty());
}

TEST_F(DeadlineTest, AnthropicsProtocolHasATypeForIt) {
  const auto late = send("POST", "/v1/messages",
                         R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 5,
                             "timeout": 0.001})");
  std::this_thread::sleep_for(milliseconds(2));
  pass_delays();
  EXPECT_EQ(late->status, 504);
  EXPECT_EQ(error(parsed(*late)).at("type"), "timeout_error");
  EXPECT_EQ(send("POST", "/v1/completions", R"({"prompt": "a", "timeout": 0})")->status, 400);
}

}  // namespace
}  // namespace encore::server
