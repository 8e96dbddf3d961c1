#include "server/request_counts.h"

#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

class RequestCountsTest : public testing::ApiTest {
 protected:
  void SetUp() override { start_counted({}); }
  void start_counted(KeySet keys) {
    ApiOptions options;
    options.request_counts = &counts_;
    options.gate.api_keys = std::move(keys);
    start(std::move(options));
  }
  // Returns the value of a metric, given its name with labels. Returns nothing if /metrics lacks
  // it.
  std::optional<double> sample(std::string_view name) {
    const auto text = "\n" + send("GET", "/metrics", "", {{"authorization", "Bearer one"}})->body;
    const size_t at = text.find(fmt::format("\n{} ", name));
    if (at == std::string::npos) return std::nullopt;
    return std::stod(text.substr(at + name.size() + 2));
  }
  std::optional<double> answers(std::string_view route, std::string_view code) {
    return sample(
        fmt::format(R"(encore_http_requests_total{{route="{}",code="{}"}})", route, code));
  }
  std::optional<double> refusals(std::string_view reason) {
    return sample(fmt::format(R"(encore_refused_requests_total{{reason="{}"}})", reason));
  }

  RequestCounts counts_;
};

TEST_F(RequestCountsTest, HasSeriesBeforeAnythingHappens) {
  EXPECT_EQ(answers("/v1/completions", "429"), 0);
  EXPECT_EQ(answers("/v1/models", "200"), 0);
  EXPECT_EQ(refusals("queue_full"), 0);
  EXPECT_EQ(sample(R"(encore_requests_total{end="finished"})"), 0);
  EXPECT_EQ(sample(R"(encore_steps_total{mode="full",reason=""})"), 0);
}

TEST_F(RequestCountsTest, CountsAnswersByRouteAndCode) {
  send("GET", "/v1/models");
  send("GET", "/v1/models/stories");
  send("GET", "/v1/models/no/such");
  send("GET", "/no/such/place");
  send("GET", "/v1/completions");
  complete("{");
  EXPECT_EQ(answers("/v1/models", "200"), 1);
  EXPECT_EQ(answers("/v1/models/*", "200"), 1);
  EXPECT_EQ(answers("/v1/models/*", "404"), 1);
  EXPECT_EQ(answers("other", "404"), 1);
  EXPECT_EQ(answers("/v1/completions", "405"), 1);
  EXPECT_EQ(answers("/v1/completions", "400"), 1);
  EXPECT_EQ(refusals("model_not_found"), 1);
  EXPECT_EQ(refusals("not_found"), 1);
  EXPECT_EQ(refusals("method_not_allowed"), 1);
}

TEST_F(RequestCountsTest, CountsRefusalsByReason) {
  generator_.refusal = engine::Refusal{engine::RefusalKind::kQueueFull, "it is"};
  complete(R"({"prompt": "a"})");
  complete(R"({"prompt": "a"})");
  generator_.refusal = engine::Refusal{engine::RefusalKind::kDraining, "the end is near"};
  complete(R"({"prompt": "a"})");
  EXPECT_EQ(answers("/v1/completions", "429"), 2);
  EXPECT_EQ(answers("/v1/completions", "503"), 1);
  EXPECT_EQ(refusals("queue_full"), 2);
  EXPECT_EQ(refusals("draining"), 1);
  start_counted({"one"});
  send("GET", "/v1/models");
  EXPECT_EQ(answers("/v1/models", "401"), 1);
  EXPECT_EQ(refusals("invalid_api_key"), 1);
}

TEST_F(RequestCountsTest, CountsAStreamOnceItBeginsAndAClientThatLeft) {
  {
    auto stream = counts_.watch(
        "/a", std::make_unique<testing::FakeResponder>(std::make_shared<testing::Exchange>()));
    stream->begin_stream({200, {}, ""});
    stream->write("part");
    stream->end_stream();
    counts_.watch("/b",
                  std::make_unique<testing::FakeResponder>(std::make_shared<testing::Exchange>()));
  }
  EXPECT_EQ(answers("/a", "200"), 1);
  EXPECT_EQ(answers("/b", "none"), 1);
}

TEST_F(RequestCountsTest, TellsOfTheProcessAndTheBuild) {
  EXPECT_GT(sample("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(sample("process_start_time_seconds"), 1e9);
  EXPECT_GT(sample("process_open_fds"), 2);
  EXPECT_GT(sample("process_cpu_seconds_total").value_or(-1), -0.5);
  EXPECT_NE(send("GET", "/metrics")->body.find("encore_build_info{version="), std::string::npos);
}

}  // namespace
}  // namespace encore::server
