#include "server/sleep.h"

#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

using engine::Refusal;
using engine::RefusalKind;
using engine::SleepDepth;

class SleepRoutesTest : public testing::ApiTest {
 protected:
  void SetUp() override { start({.gate = {.api_keys = {"user"}, .admin_keys = {"admin"}}}); }
  std::shared_ptr<testing::Exchange> as_admin(std::string method, std::string path,
                                              std::string query = "") {
    return send(std::move(method), std::move(path), "", {{"authorization", "Bearer admin"}},
                std::move(query));
  }
  std::string metrics() {
    return send("GET", "/metrics", "", {{"authorization", "Bearer user"}})->body;
  }
};

TEST_F(SleepRoutesTest, AreForOperatorsAlone) {
  for (const auto& [method, path] :
       {std::pair{"POST", "/sleep"}, {"POST", "/wake_up"}, {"GET", "/is_sleeping"}}) {
    EXPECT_EQ(send(method, path)->status, 401) << path;
    EXPECT_EQ(send(method, path, "", {{"authorization", "Bearer user"}})->status, 401) << path;
  }
  EXPECT_EQ(as_admin("GET", "/is_sleeping")->status, 200);
  EXPECT_EQ(as_admin("GET", "/v1/models")->status, 401);
  EXPECT_TRUE(generator_.asked.empty());
  start();
  const auto refused = as_admin("POST", "/sleep");
  EXPECT_EQ(refused->status, 403);
  EXPECT_NE(refused->body.find("--admin-key-file"), std::string::npos);
  EXPECT_TRUE(generator_.asked.empty());
}

TEST_F(SleepRoutesTest, AnswerOnceTheModelSleepsOrIsAwake) {
  const auto slept = as_admin("POST", "/sleep", "level=1");
  pump();
  EXPECT_FALSE(slept->has_ended);
  ASSERT_EQ(generator_.asked.size(), 1U);
  EXPECT_EQ(generator_.asked[0].depth, SleepDepth::kKvAndWeights);
  generator_.asked[0].done(std::nullopt);
  EXPECT_FALSE(slept->has_ended);  // it is answered later, on the server's thread
  pump();
  EXPECT_EQ(slept->status, 200);
  EXPECT_EQ(slept->body, R"({"is_sleeping":true})");

  const auto woken = as_admin("POST", "/wake_up");
  ASSERT_EQ(generator_.asked.size(), 2U);
  EXPECT_EQ(generator_.asked[1].depth, std::nullopt);
  generator_.asked[1].done(Refusal{RefusalKind::kFailed, "cannot wake: no memory"});
  pump();
  EXPECT_EQ(woken->status, 503);
  EXPECT_EQ(error(parsed(*woken)).at("code"), "failed");
  EXPECT_EQ(error(parsed(*woken)).at("message"), "cannot wake: no memory");
}

TEST_F(SleepRoutesTest, KeepTheWeightsWhereThatIsAskedAndRefuseWhatTheyDoNotKnow) {
  as_admin("POST", "/sleep", "level=2&tags=kv_cache");
  ASSERT_EQ(generator_.asked.size(), 1U);
  EXPECT_EQ(generator_.asked[0].depth, SleepDepth::kKv);
  for (const char* query :
       {"level=0", "level", "tags=weights", "tags=kv_cache&deep=1", "%6Cevel=7"})
    EXPECT_EQ(as_admin("POST", "/sleep", query)->status, 400) << query;
  EXPECT_EQ(as_admin("POST", "/wake_up", "tags=weights")->status, 400);
  EXPECT_EQ(generator_.asked.size(), 1U);
}

TEST_F(SleepRoutesTest, RequestsAreToldThatTheModelSleepsAndSoAreProbes) {
  generator_.refusal = Refusal{RefusalKind::kAsleep, "the model is asleep"};
  EXPECT_EQ(as_admin("GET", "/is_sleeping")->body, R"({"is_sleeping":true})");
  const auto health = send("GET", "/health");
  const auto request =
      send("POST", "/v1/completions", R"({"prompt": "a"})", {{"authorization", "Bearer user"}});
  for (const auto& exchange : {health, request}) {
    EXPECT_EQ(exchange->status, 503);
    EXPECT_EQ(error(parsed(*exchange)).at("code"), "asleep");
    EXPECT_NE(exchange->header("Retry-After"), "");
  }
  EXPECT_NE(metrics().find("\nencore_asleep 1\n"), std::string::npos);
  generator_.refusal.reset();
  EXPECT_EQ(as_admin("GET", "/is_sleeping")->body, R"({"is_sleeping":false})");
  EXPECT_NE(metrics().find("\nencore_asleep 0\n"), std::string::npos);
}

}  // namespace
}  // namespace encore::server
