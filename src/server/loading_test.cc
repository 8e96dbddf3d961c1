#include "server/loading.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "server/testing/fake_exchange.h"

namespace encore::server {
namespace {

testing::Exchange ask(const Loading& loading, std::string method, std::string path,
                      Headers headers = {}) {
  const auto exchange = std::make_shared<testing::Exchange>();
  testing::FakeResponder responder(exchange);
  loading.handle({std::move(method), std::move(path), "", std::move(headers), ""}, responder);
  return *exchange;
}

TEST(Loading, SaysThatTheProcessLives) {
  const auto exchange = ask(Loading({}), "GET", "/live");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(json::parse(exchange.body, "body").at("status"), "live");
}

TEST(Loading, TurnsEveryOtherRequestAwayForAWhileAndSaysHowFarItIs) {
  Loading loading({});
  for (const auto& [method, path] : {std::pair("GET", "/health"),
                                     {"GET", "/metrics"},
                                     {"GET", "/"},
                                     {"GET", "/nothing"},
                                     {"POST", "/v1/completions"},
                                     {"POST", "/v1/chat/completions"},
                                     {"POST", "/v1/responses"}}) {
    loading.enter("reading the configuration");
    auto exchange = ask(loading, method, path);
    EXPECT_EQ(exchange.status, 503) << path;
    EXPECT_GT(std::stoi(exchange.header("Retry-After")), 0) << path;
    const auto message = [&] {
      const json::value error = json::parse(exchange.body, "body").at("error");
      EXPECT_EQ(error.at("code"), "loading") << path;
      return std::string(error.at("message").as_string());
    };
    EXPECT_TRUE(message().ends_with(": reading the configuration")) << message();
    loading.enter("recording 12 of 51 sizes");
    exchange = ask(loading, method, path);
    EXPECT_TRUE(message().ends_with(": recording 12 of 51 sizes")) << message();
  }
}

TEST(Loading, WritesErrorsAsTheProtocolOfTheRouteDoes) {
  const auto exchange = ask(Loading({}), "POST", "/v1/messages");
  EXPECT_EQ(exchange.status, 503);
  EXPECT_EQ(json::parse(exchange.body, "body").at("type"), "error");
}

TEST(Loading, AnswersPagesOfAllowedOrigins) {
  const Loading loading({.allowed_origins = {"https://chat.example"}});
  const Headers origin = {{"origin", "https://chat.example"}, {"host", "localhost"}};
  EXPECT_EQ(ask(loading, "OPTIONS", "/v1/completions", origin).status, 204);
  const auto refused = ask(loading, "POST", "/v1/completions", origin);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("Access-Control-Allow-Origin"), "https://chat.example");
}

TEST(Loading, TellsOtherMachinesPagesNothing) {
  EXPECT_EQ(ask(Loading({}), "GET", "/live", {{"host", "evil.example"}}).status, 403);
  EXPECT_EQ(ask(Loading({.is_loopback = false}), "GET", "/live", {{"host", "this.example"}}).status,
            200);
}

}  // namespace
}  // namespace encore::server
