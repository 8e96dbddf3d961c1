#include "server/request_log.h"

#include <gtest/gtest.h>

#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

class RequestLogTest : public testing::ApiTest {
 protected:
  void SetUp() override { start({.request_log = &log_}); }

  // Returns the lines that are logged while `call` runs.
  template <typename Call>
  static std::string logged(const Call& call) {
    ::testing::internal::CaptureStderr();
    call();
    return ::testing::internal::GetCapturedStderr();
  }
  std::shared_ptr<testing::Exchange> complete(const std::string& more = "") {
    return send("POST", "/v1/completions", R"({"prompt": "Once", "max_tokens": 9)" + more + "}");
  }

  RequestLog log_;
};

TEST_F(RequestLogTest, ARequestHasItsLineWhenItHasEndedAndNotBefore) {
  const std::string early = logged([&] {
    complete();
    generator_.give(1, ids("One"));
    pump();
  });
  EXPECT_EQ(early, "");
  const std::string line = logged([&] {
    generator_.end(1, engine::EndReason::kLength, ids(" day"));
    pump();
  });
  EXPECT_TRUE(
      line.starts_with("encore: request id=\"\" client=\"\" method=\"POST\" "
                       "path=\"/v1/completions\" status=200 finish=\"length\" "))
      << line;
  EXPECT_NE(line.find(" completion_tokens=2 first_token_s="), std::string::npos) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
}

TEST_F(RequestLogTest, SaysWhyARequestEndedThatDidNotFinish) {
  for (const char* stream : {"false", "true"}) {
    const auto exchange = complete(fmt::format(R"(, "stream": {})", stream));
    EXPECT_NE(logged([&] { exchange->leave(); }).find("finish=\"disconnected\""),
              std::string::npos);
    complete(fmt::format(R"(, "stream": {})", stream));
    EXPECT_NE(logged([&] {
                generator_.end(generator_.live.rbegin()->first, engine::EndReason::kError, {}, "!");
                pump();
              }).find("finish=\"error\""),
              std::string::npos);
  }
}

TEST_F(RequestLogTest, ChoicesThatEndDifferentlyHaveAllTheirReasons) {
  complete(R"(, "n": 2)");
  const std::string line = logged([&] {
    generator_.end(1, engine::EndReason::kLength, ids("One"));
    generator_.end(2, engine::EndReason::kStop, {*tokenizer_.eos_id()});
    pump();
  });
  EXPECT_NE(line.find("finish=\"length,stop\""), std::string::npos) << line;
}

TEST_F(RequestLogTest, NothingOfARequestMakesALineOfItsOwn) {
  const std::string line =
      logged([&] { send("GE\nT", "/a\r\nencore: request \"\x1b\xff" + std::string(500, 'x')); });
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_TRUE(std::none_of(line.begin(), line.end() - 1, [](unsigned char c) {
    return c < ' ' || c == 0x7f;
  })) << line;
  EXPECT_LT(line.size(), 400U);
}

TEST_F(RequestLogTest, ProbesAndThePageHaveNoneUnlessTheyFail) {
  for (const char* path : {"/health", "/metrics", "/", "/live"})
    EXPECT_EQ(logged([&] { send("GET", path); }), "") << path;
  generator_.refusal = engine::Refusal{engine::RefusalKind::kDraining, "the server ends"};
  EXPECT_NE(logged([&] { send("GET", "/health"); }).find("status=503"), std::string::npos);
  EXPECT_NE(logged([&] { send("GET", "/v1/models"); }).find("status=200"), std::string::npos);
}

TEST_F(RequestLogTest, NamesTheKeyThatARequestBringsAndNeverTheKey) {
  KeySet keys = {"secret-1"};
  keys.add("secret-2", "alice");
  start({.gate = {.api_keys = keys}, .request_log = &log_});
  const auto line_with = [&](const std::string& key) {
    return logged([&] { send("GET", "/v1/models", "", {{"authorization", "Bearer " + key}}); });
  };
  EXPECT_NE(line_with("secret-2").find(" key=\"alice\" method=\"GET\" "), std::string::npos);
  EXPECT_NE(line_with("secret-1").find(" key=\"" + *keys.find("secret-1") + "\" "),
            std::string::npos);
  const std::string refused = line_with("secret-3");
  EXPECT_NE(refused.find("status=401"), std::string::npos);
  EXPECT_EQ(refused.find("key="), std::string::npos);
  for (const char* key : {"secret-1", "secret-2", "secret-3"})
    EXPECT_EQ(line_with(key).find("secret"), std::string::npos);
}

TEST_F(RequestLogTest, IsOffUnlessItIsAskedFor) {
  start();
  EXPECT_EQ(logged([&] { send("GET", "/v1/models"); }), "");
}

}  // namespace
}  // namespace encore::server
