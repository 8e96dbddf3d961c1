#include "measure/traffic_report.h"

#include <gtest/gtest.h>

namespace encore::measure {
namespace {

using engine::StepCount;
using runtime::Mode;

std::vector<StepCount> some_steps() {
  return {
      {.mode = Mode::kEager, .key = StepKey::mixed(33, 2), .steps = 1, .tokens = 33},
      {.mode = Mode::kPiecewise,
       .key = StepKey::mixed(64, 2),
       .steps = 2,
       .tokens = 100,
       .padding = 28},
      {.mode = Mode::kPiecewise,
       .key = StepKey::mixed(64, 4),
       .steps = 3,
       .tokens = 180,
       .padding = 12},
      {.mode = Mode::kFull, .key = StepKey::uniform(4), .steps = 10, .tokens = 30, .padding = 10},
      {.mode = Mode::kFull, .key = StepKey::uniform(8), .steps = 5, .tokens = 40}};
}

TrafficReport some_report() {
  traffic::TrafficRecord record;
  record.wall_s = 2;
  record.requests.push_back({.arrival_s = 0,
                             .submitted_s = 0,
                             .input_tokens = 100,
                             .output_tokens = 3,
                             .deliveries = {{0.5, 1}, {1.5, 1}, {2, 1}},
                             .ended = engine::EndReason::kLength});
  record.samples = {{0.1, 1, 0}, {1.9, 1, 3}};
  record.steps = some_steps();
  record.decode = {.steps = 15, .seconds = 0.5};
  record.mixed = {.steps = 6, .seconds = 1};
  record.host_cpu_s = 21e-3;
  record.host_times.emplace();
  record.host_times->by_work.front() = std::chrono::microseconds(42);
  record.host_times->gap = std::chrono::microseconds(63);
  record.device_idle = {.same_us = {2, 3, 4}, .changed_us = {9}};
  record.memory = {{0, 1 << 20, 5 << 20}, {0.9, 3 << 20, 5 << 20}, {1.9, 2 << 20, 6 << 20}};
  return {.title = "bench serve",
          .what = {"1 request of <a trace>"},
          .record = record,
          .limits = {.first_token_ms = 600, .between_deliveries_ms = 900},
          .busy = "GPU busy"};
}

TEST(StepGroups, AddUpMixedStepsOfOneBucketOfTokens) {
  const auto groups = step_groups(some_steps());
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[1].bucket, 64);
  EXPECT_TRUE(groups[1].is_mixed);
  EXPECT_EQ(groups[1].steps, 5);
  EXPECT_EQ(groups[1].tokens, 280);
  EXPECT_DOUBLE_EQ(groups[1].padding_share(), 40.0 / 320);
  EXPECT_EQ(groups[2].bucket, 4);
  EXPECT_FALSE(groups[2].is_mixed);
  const auto sums = step_sums(some_steps());
  ASSERT_EQ(sums.size(), 3U);
  EXPECT_EQ(sums[2].steps, 15);
  EXPECT_DOUBLE_EQ(sums[2].padding_share(), 10.0 / 80);
}

TEST(TrafficJson, HasTheFiguresAndTheSteps) {
  const json::object out = traffic_json(some_report());
  EXPECT_EQ(out.at("num_steps"), 21);
  EXPECT_EQ(out.at("eager_steps"), 1);
  EXPECT_DOUBLE_EQ(out.at("padding_share").as_double(), 50.0 / 433);
  EXPECT_DOUBLE_EQ(out.at("output_tokens_per_s").as_double(), 1.5);
  EXPECT_DOUBLE_EQ(out.at("device_busy").at("share").as_double(), 0.75);
  const auto host_us = [&](const char* key) { return out.at("host_us_per_step").at(key); };
  EXPECT_DOUBLE_EQ(host_us("plan").as_double(), 2);
  EXPECT_DOUBLE_EQ(host_us("all").as_double(), 2);
  EXPECT_DOUBLE_EQ(host_us("device_waited").as_double(), 3);
  EXPECT_DOUBLE_EQ(host_us("cpu").as_double(), 1000);
  EXPECT_EQ(out.at("late_steps"), 0);
  EXPECT_DOUBLE_EQ(out.at("device_idle_us").at("same").at("p50").as_double(), 3);
  EXPECT_DOUBLE_EQ(out.at("device_idle_us").at("changed").at("p50").as_double(), 9);
  EXPECT_TRUE(out.at("prefix_cache").is_null());
  // One second lies between two deliveries. That is above the limit on this time, so the request
  // does not count as goodput.
  EXPECT_EQ(out.at("goodput").at("requests"), 0);
  EXPECT_EQ(out.at("steps").as_array().size(), 5U);
  EXPECT_EQ(out.at("ended").at("length"), 1);
  EXPECT_EQ(out.at("failed"), 0);
  EXPECT_DOUBLE_EQ(out.at("memory_use").at("settled_s").as_double(), 1);
  EXPECT_EQ(out.at("memory_use").at("host").at("first_max_bytes"), 3 << 20);
  EXPECT_EQ(out.at("memory_use").at("device").at("later_max_bytes"), 6 << 20);
}

TEST(TrafficText, SaysWhatWasServedAndHowItKeptToTheLimits) {
  const std::string text = traffic_text(some_report());
  for (const char* part :
       {"1 request of <a trace>\n", "1.5 output tokens/s, 51.5 tokens/s with those of prompts",
        "0 of 1 requests kept to time to first token up to 600 ms", "GPU busy: 75.00 %",
        "21 steps, 1 eager, 11.55 % padding", "64 tokens  piecewise",
        "host, us a step: plan 2.0, pack 0.0",
        "all 2.0; the device waited for 3.0, and 0 steps were launched late; 1000.0 of CPU",
        "device idle between steps, us: same batch p50 3.0", "; changed batch p50 9.0",
        "ended: 1 length; 0 were aborted by their clients, 0 failed", "until 1 s"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(TrafficText, SaysHowManyDraftsCountedAndWhoHadSomeBesidePrompts) {
  TrafficReport report = some_report();
  EXPECT_EQ(traffic_text(report).find("drafts:"), std::string::npos);
  report.record.drafts = {.rows = 20,
                          .rows_without = 4,
                          .tokens = 40,
                          .mixed_rows = 12,
                          .mixed_drafting_rows = 9,
                          .accepted = {16, 8}};
  EXPECT_NE(traffic_text(report).find(
                "drafts: 20 rows of steps had 40, of which 24 counted (60.00 %); 4 rows beside "
                "them took none; 9 of 12 rows beside prompts had some (75.00 %)\n"),
            std::string::npos);
  const json::object drafts = traffic_json(report).at("drafts").as_object();
  EXPECT_EQ(drafts.at("rows_beside_prompts"), 12);
  EXPECT_EQ(drafts.at("rows_beside_prompts_with_drafts"), 9);
}

TEST(TrafficCurves, HaveLoadThroughputMemoryAndLatencies) {
  const TrafficReport report = some_report();
  const json::object curves = traffic_curves(report);
  for (const char* key : {"running", "waiting", "output_tokens_per_s", "host_gib", "device_gib"})
    EXPECT_FALSE(curves.at(key).as_array().empty()) << key;
  double tokens = 0;
  for (const json::value& point : curves.at("output_tokens_per_s").as_array())
    tokens += point.at(1).as_double() * report.record.wall_s / 240;
  EXPECT_NEAR(tokens, static_cast<double>(report.figures.output_tokens), 1e-6);
  for (const json::value& latencies : curves.at("latencies").as_array()) {
    const json::array& points = latencies.at("points").as_array();
    EXPECT_EQ(points.front().at(1), 0.0);
    EXPECT_EQ(points.back().at(1), 100.0);
  }
  EXPECT_EQ(curves.at("latencies").at(0).at("limit_ms"), 600.0);
}

TEST(TrafficCurves, OfNothingHaveNoPointsButForThroughput) {
  const json::object curves = traffic_curves({.title = "bench serve"});
  EXPECT_TRUE(curves.at("running").as_array().empty());
  EXPECT_TRUE(curves.at("latencies").as_array().empty());
  for (const json::value& point : curves.at("output_tokens_per_s").as_array())
    EXPECT_EQ(point.at(1), 0.0);
}

}  // namespace
}  // namespace encore::measure
