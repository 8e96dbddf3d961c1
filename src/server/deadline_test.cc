#include "server/testing/api_fixture.h"

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
  pass(milliseconds(4));
  EXPECT_FALSE(late->has_ended);
  pass(milliseconds(1));
  EXPECT_EQ(late->status, 504);
  EXPECT_EQ(error(parsed(*late)).at("code"), "request_timeout");
  EXPECT_EQ(error(parsed(*late)).at("type"), "server_error");
  EXPECT_EQ(generator_.aborted, std::vector<engine::RequestId>{1});
  EXPECT_EQ(metric("encore_requests_total{end=\"timed_out\"}"), "1");
  pass(milliseconds(50));
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
  pass(milliseconds(4));
  EXPECT_FALSE(stream->has_ended);
  pass(milliseconds(1));
  EXPECT_EQ(stream->status, 200);
  EXPECT_TRUE(stream->has_ended);
  EXPECT_EQ(error(events(*stream).back()).at("code"), "request_timeout");
  EXPECT_EQ(generator_.aborted, (std::vector<engine::RequestId>{1, 2}));
  // Tokens that the engine delivers after the deadline are dropped.
  const std::string body = stream->body;
  generator_.end(1, engine::EndReason::kAborted);
  generator_.end(2, engine::EndReason::kAborted, ids("b"));
  pump();
  EXPECT_EQ(stream->body, body);
}

TEST_F(DeadlineTest, TheNextDeadlineIsWaitedForHoweverTheyCome) {
  const auto second = ask(R"(, "timeout": 0.01)");
  const auto first = ask(R"(, "timeout": 0.002)");
  const auto third = ask(R"(, "timeout": 0.03)");
  pass(milliseconds(2));
  EXPECT_EQ(first->status, 504);
  EXPECT_EQ(second->status, 0);
  pass(milliseconds(8));
  EXPECT_EQ(second->status, 504);
  EXPECT_EQ(third->status, 0);
  pass(milliseconds(20));
  EXPECT_EQ(third->status, 504);
  EXPECT_TRUE(waiting_.empty());
  ask(R"(, "timeout": 50)");
  ask(R"(, "timeout": 60)");
  EXPECT_EQ(waiting_.size(), 1U);
}

TEST_F(DeadlineTest, TheServersTimeoutIsTheLongest) {
  start({.request_timeout = milliseconds(20)});
  const auto without = ask("");
  const auto longer = ask(R"(, "timeout": 5)");
  const auto shorter = ask(R"(, "timeout": 0.001)");
  pass(milliseconds(1));
  EXPECT_EQ(shorter->status, 504);
  pass(milliseconds(18));
  EXPECT_EQ(without->status, 0);
  EXPECT_EQ(longer->status, 0);
  pass(milliseconds(1));
  EXPECT_EQ(without->status, 504);
  EXPECT_EQ(longer->status, 504);
}

TEST_F(DeadlineTest, ARequestThatIsLateBeforeItBeginsIsNotBegun) {
  start({.request_timeout = milliseconds(1), .small_body_bytes = 1});
  const auto late = ask("");
  pass(milliseconds(1));
  wait_and_pump();
  EXPECT_EQ(late->status, 504);
  EXPECT_TRUE(generator_.requests.empty());
}

TEST_F(DeadlineTest, AnthropicsProtocolHasATypeForIt) {
  const auto late = send("POST", "/v1/messages",
                         R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 5,
                             "timeout": 0.001})");
  pass(milliseconds(1));
  EXPECT_EQ(late->status, 504);
  EXPECT_EQ(error(parsed(*late)).at("type"), "timeout_error");
  EXPECT_EQ(send("POST", "/v1/completions", R"({"prompt": "a", "timeout": 0})")->status, 400);
}

}  // namespace
}  // namespace encore::server
