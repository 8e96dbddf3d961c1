#include "traffic/figures.h"

#include <gtest/gtest.h>

namespace encore::traffic {
namespace {

// Makes a record of three requests in four seconds: one is in time, one waits long between two
// deliveries, and one never ends.
TrafficRecord made_up_record() {
  TrafficRecord record;
  record.wall_s = 4;
  record.requests.push_back({.arrival_s = 0,
                             .submitted_s = 0.001,
                             .input_tokens = 100,
                             .output_tokens = 4,
                             .deliveries = {{0.1, 1}, {0.15, 2}, {0.2, 1}},
                             .ended = engine::EndReason::kLength});
  record.requests.push_back({.arrival_s = 1,
                             .submitted_s = 1.003,
                             .input_tokens = 50,
                             .output_tokens = 2,
                             .deliveries = {{1.2, 1}, {4, 1}},
                             .ended = engine::EndReason::kLength});
  record.requests.push_back({.arrival_s = 2,
                             .submitted_s = 2,
                             .input_tokens = 1000,
                             .output_tokens = 9,
                             .deliveries = {{2.5, 3}}});
  return record;
}

TEST(Distribution, HasItsQuantilesBetweenNeighbours) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i)
    values.push_back(i);
  const Distribution of_101 = distribution(values);
  EXPECT_EQ(of_101.count, 101);
  EXPECT_DOUBLE_EQ(of_101.mean, 50);
  EXPECT_DOUBLE_EQ(of_101.p50, 50);
  EXPECT_DOUBLE_EQ(of_101.p90, 90);
  EXPECT_DOUBLE_EQ(of_101.p99, 99);
  EXPECT_DOUBLE_EQ(of_101.max, 100);
  const Distribution of_two = distribution({10, 20});
  EXPECT_DOUBLE_EQ(of_two.p50, 15);
  EXPECT_DOUBLE_EQ(of_two.p90, 19);
  EXPECT_EQ(distribution({}).count, 0);
  EXPECT_EQ(distribution({}).p99, 0);
}

TEST(Figures, TellRequestsThatFailedFromThoseWhoseClientsLeft) {
  TrafficRecord record = made_up_record();
  record.requests[0].ended = engine::EndReason::kStop;
  record.requests.push_back({.has_left = true, .ended = engine::EndReason::kAborted});
  // This request's answer was whole before the engine heard that its client left.
  record.requests.push_back({.has_left = true, .ended = engine::EndReason::kLength});
  record.requests.push_back({.ended = engine::EndReason::kAborted});
  record.requests.push_back({.ended = engine::EndReason::kGrammar});
  const Figures result = figures(record);
  EXPECT_EQ(result.num_complete, 3);
  EXPECT_EQ(result.num_left, 1);
  EXPECT_EQ(result.num_failed(), 3);  // one of them never ended
  EXPECT_EQ(result.ended, (std::array<int64_t, 5>{1, 2, 2, 0, 1}));
}

TEST(Figures, CompareTheMemoryInUseBeforeAndAfterAMinute) {
  TrafficRecord record;
  record.wall_s = 480;
  record.memory = {{0, 10, {}}, {60, 40, {}}, {61, 30, {}}, {300, 50, {}}, {480, 20, {}}};
  const Figures result = figures(record);
  EXPECT_EQ(result.settled_s, 60);
  ASSERT_TRUE(result.host_memory.has_value());
  EXPECT_EQ(result.host_memory->first_max_bytes, 40);
  EXPECT_EQ(result.host_memory->later_max_bytes, 50);
  EXPECT_EQ(result.host_memory->end_bytes, 20);
  EXPECT_FALSE(result.device_memory.has_value());
  record.wall_s = 20;
  EXPECT_EQ(figures(record).settled_s, 10);
}

TEST(Figures, AreRatesOverTheWholeTime) {
  const Figures result = figures(made_up_record());
  EXPECT_EQ(result.num_requests, 3);
  EXPECT_EQ(result.num_complete, 2);
  EXPECT_EQ(result.input_tokens, 150);
  EXPECT_EQ(result.output_tokens, 4 + 2 + 3);
  EXPECT_DOUBLE_EQ(result.requests_per_s, 0.5);
  EXPECT_DOUBLE_EQ(result.output_tokens_per_s, 9 / 4.0);
  EXPECT_DOUBLE_EQ(result.total_tokens_per_s, 159 / 4.0);
}

TEST(Figures, TimesCountFromTheArrivalAndBetweenDeliveriesNotTokens) {
  const TrafficRecord record = made_up_record();
  const Figures result = figures(record);
  EXPECT_EQ(result.first_token.count, 3);
  EXPECT_NEAR(result.first_token.p50, 200, 1e-9);
  EXPECT_NEAR(result.first_token.max, 500, 1e-9);
  const auto between = between_deliveries_ms(record);
  ASSERT_EQ(between.size(), 3U);
  EXPECT_NEAR(between[0], 50, 1e-9);  // one delivery of two tokens counts once
  EXPECT_NEAR(between[1], 50, 1e-9);
  EXPECT_NEAR(between[2], 2800, 1e-9);
  EXPECT_EQ(result.end_to_end.count, 2);
  EXPECT_NEAR(result.end_to_end.max, 3000, 1e-9);
  EXPECT_NEAR(result.lateness.max, 3, 1e-9);
}

TEST(Goodput, CountsCompleteRequestsWhoseEveryDeliveryKeepsToTheLimits) {
  const TrafficRecord record = made_up_record();
  const auto num_good = [&](const LatencyLimits& limits) {
    return figures(record, limits).num_good;
  };
  EXPECT_EQ(num_good({}), 2);
  EXPECT_EQ(num_good({.first_token_ms = 250}), 2);
  EXPECT_EQ(num_good({.first_token_ms = 150}), 1);
  EXPECT_EQ(num_good({.first_token_ms = 50}), 0);
  EXPECT_EQ(num_good({.between_deliveries_ms = 60}), 1);
  EXPECT_EQ(num_good({.between_deliveries_ms = 2801}), 2);
  EXPECT_EQ(num_good({.first_token_ms = 150, .between_deliveries_ms = 40}), 0);
  const Figures strict = figures(record, {.between_deliveries_ms = 60});
  EXPECT_DOUBLE_EQ(strict.good_requests_per_s, 0.25);
  EXPECT_DOUBLE_EQ(strict.good_output_tokens_per_s, 1);
}

TEST(Figures, OfNothingAreZeros) {
  const Figures result = figures({});
  EXPECT_EQ(result.num_requests, 0);
  EXPECT_EQ(result.output_tokens_per_s, 0);
  EXPECT_EQ(result.first_token.max, 0);
}

}  // namespace
}  // namespace encore::traffic
