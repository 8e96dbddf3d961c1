#include "planning/tune.h"

#include <algorithm>
#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "planning/schedules.h"

namespace encore::planning {
namespace {

Histogram random_histogram(std::mt19937& random, int64_t num_sizes, int64_t largest) {
  std::vector<int64_t> sizes(largest);
  for (int64_t i = 0; i < largest; ++i)
    sizes[i] = i + 1;
  std::shuffle(sizes.begin(), sizes.end(), random);
  sizes.resize(num_sizes);
  std::sort(sizes.begin(), sizes.end());
  Histogram histogram;
  for (const int64_t size : sizes)
    histogram.push_back({size, static_cast<int64_t>(random() % 20) + 1});
  return histogram;
}

// Returns the least number of padding rows of any ladder that has at most `num_sizes` sizes and has
// the size `max`. It is found by trying all ladders.
int64_t least_padding(const Histogram& histogram, int64_t max, int64_t num_sizes) {
  int64_t least = INT64_MAX;
  for (uint32_t set = 0; set < (1U << (max - 1)); ++set) {
    std::vector<int64_t> sizes{max};
    for (int64_t size = 1; size < max; ++size) {
      if ((set >> (size - 1) & 1U) != 0) sizes.push_back(size);
    }
    if (static_cast<int64_t>(sizes.size()) > num_sizes) continue;
    least = std::min(least, price(histogram, runtime::Ladder(sizes)).padding);
  }
  return least;
}

LoggedStep step(int64_t context_tokens, int64_t generation_requests) {
  LoggedStep logged;
  logged.context_tokens = context_tokens;
  logged.generation_requests = generation_requests;
  return logged;
}

LoggedStep elapsed_ms(int64_t size, int64_t bucket, double us) {
  LoggedStep logged = step(0, size);
  logged.bucket = bucket;
  logged.gpu_us = us;
  return logged;
}

TEST(OptimalLadder, EqualsBruteForceOverEverySetOfSizes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t largest = 4 + static_cast<int64_t>(random() % 8);
    const auto histogram =
        random_histogram(random, 1 + static_cast<int64_t>(random() % largest), largest);
    // The maximum is below, at, or above the size of the largest step.
    for (const int64_t max : {largest - 2, histogram.back().size, largest + 1}) {
      for (int64_t num_sizes = 1; num_sizes <= 5; ++num_sizes) {
        const runtime::Ladder ladder = optimal_ladder(histogram, max, num_sizes);
        EXPECT_LE(ladder.sizes().size(), static_cast<size_t>(num_sizes));
        EXPECT_EQ(ladder.sizes().back(), max);
        EXPECT_EQ(price(histogram, ladder).padding, least_padding(histogram, max, num_sizes))
            << "max " << max << ", " << num_sizes << " sizes";
      }
    }
  }
}

TEST(OptimalLadder, NeverPadsMoreThanANamedScheduleOfAsManySizesAndTheSameMaximum) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 10; ++trial) {
    const auto histogram = random_histogram(random, 400, 5000);
    for (const Schedule& schedule : schedules()) {
      for (const int64_t max : {100L, 512L, 3000L, 6000L}) {
        const runtime::Ladder named = schedule.ladder(64, max);
        const int64_t last = named.sizes().back();
        const auto num_sizes = static_cast<int64_t>(named.sizes().size());
        const runtime::Ladder best = optimal_ladder(histogram, last, num_sizes);
        const LadderPrice best_price = price(histogram, best);
        const LadderPrice named_price = price(histogram, named);
        EXPECT_LE(best_price.padding, named_price.padding) << schedule.name << " up to " << max;
        EXPECT_EQ(best_price.hits, named_price.hits);
        EXPECT_EQ(best.sizes().back(), last);
      }
    }
  }
}

TEST(TunedLadder, HasSizeOneWhereThereIsRoomAndIsElseTheBest) {
  std::mt19937 random(4);
  const auto cost = [](int64_t size) { return static_cast<double>(size); };
  for (int trial = 0; trial < 20; ++trial) {
    const auto histogram = random_histogram(random, 5, 9);
    for (int64_t num_sizes = 2; num_sizes <= 4; ++num_sizes) {
      const runtime::Ladder ladder = TunedLadders(histogram, 9, 4, cost, true).ladder(num_sizes);
      EXPECT_EQ(ladder.sizes().front(), 1);
      EXPECT_EQ(ladder.sizes().back(), 9);
      EXPECT_LE(ladder.sizes().size(), static_cast<size_t>(num_sizes));
      // Very many steps of size 1 force the best ladder to have a 1. `ladder` must pad these steps
      // as little as that best ladder.
      Histogram with_ones = histogram;
      if (with_ones.front().size == 1) with_ones.erase(with_ones.begin());
      with_ones.insert(with_ones.begin(), {1, 1 << 20});
      EXPECT_EQ(price(with_ones, ladder).padding, least_padding(with_ones, 9, num_sizes));
      EXPECT_EQ(TunedLadders(histogram, 9, 4, cost, false).ladder(num_sizes).sizes(),
                optimal_ladder(histogram, 9, num_sizes).sizes());
    }
    EXPECT_EQ(TunedLadders(histogram, 9, 1, cost, true).ladder(1).sizes(),
              (std::vector<int64_t>{9}));
  }
}

TEST(OptimalLadder, PadsNothingWithASizeForEverySizeThereIs) {
  const Histogram histogram{{3, 10}, {7, 1}, {20, 5}};
  EXPECT_EQ(optimal_ladder(histogram, 20, 3).sizes(), (std::vector<int64_t>{3, 7, 20}));
  EXPECT_EQ(optimal_ladder(histogram, 20, 1000).sizes(), (std::vector<int64_t>{3, 7, 20}));
  EXPECT_EQ(optimal_ladder(histogram, 20, 2).sizes(), (std::vector<int64_t>{3, 20}));
  EXPECT_EQ(optimal_ladder({}, 20, 4).sizes(), (std::vector<int64_t>{20}));
}

TEST(OptimalLadder, OfEveryNumberOfSizesComesFromOneTable) {
  std::mt19937 random(3);
  const auto histogram = random_histogram(random, 100, 1000);
  const OptimalLadders ladders(histogram, 1000, 50,
                               [](int64_t size) { return static_cast<double>(size); });
  int64_t padding = INT64_MAX;
  for (int64_t k = 1; k <= 50; ++k) {
    const int64_t less = price(histogram, ladders.ladder(k)).padding;
    EXPECT_EQ(less, price(histogram, optimal_ladder(histogram, 1000, k)).padding);
    EXPECT_LE(less, padding);
    padding = less;
  }
}

TEST(OptimalLadder, OfThousandsOfSizesIsFoundAtOnce) {
  std::mt19937 random(4);
  const auto histogram = random_histogram(random, 8000, 16384);
  const auto start = std::chrono::steady_clock::now();
  const runtime::Ladder ladder = optimal_ladder(histogram, 16384, 128);
  EXPECT_EQ(ladder.sizes().size(), 128U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
}

TEST(OptimalLadder, SpendsItsSizesWhereTimeIsLostRatherThanRows) {
  // Steps of up to 8 sequences take equally long. Beyond that, each further sequence costs time.
  const Histogram histogram{{1, 100}, {8, 100}, {16, 10}, {17, 10}};
  const auto us = [](int64_t size) {
    return size <= 8 ? 10.0 : 10.0 + 5.0 * static_cast<double>(size - 8);
  };
  EXPECT_EQ(OptimalLadders(histogram, 17, 3, us).ladder(3).sizes(),
            (std::vector<int64_t>{8, 16, 17}));
  EXPECT_EQ(optimal_ladder(histogram, 17, 3).sizes(), (std::vector<int64_t>{1, 8, 17}));
}

TEST(StepSizes, MatchesStepsWithoutContextOnRequestsAndTheOthersOnTheSum) {
  const std::vector<LoggedStep> steps{step(0, 3), step(0, 3), step(5, 3), step(8, 0), step(0, 0)};
  const StepSizes sizes = step_sizes(steps);
  EXPECT_EQ(sizes.decode, (Histogram{{3, 2}}));
  EXPECT_EQ(sizes.tokens, (Histogram{{8, 2}}));
  EXPECT_EQ(sizes.num_idle, 1);
  EXPECT_EQ(sizes.num_steps(), 4);
}

TEST(Price, CountsPaddingOfHitsAndLeavesOutStepsAboveTheLadder) {
  const LadderPrice found = price({{1, 4}, {3, 2}, {9, 1}}, runtime::Ladder({2, 4}));
  EXPECT_EQ(found.steps, 7);
  EXPECT_EQ(found.hits, 6);
  EXPECT_EQ(found.rows, 4 + 6);
  EXPECT_EQ(found.padding, 4 + 2);
  EXPECT_DOUBLE_EQ(found.hit_rate(), 6.0 / 7);
  EXPECT_DOUBLE_EQ(found.waste(), 6.0 / 16);
  EXPECT_EQ(price({{1, 1}}, runtime::Ladder()).hits, 0);
  EXPECT_DOUBLE_EQ(price({}, runtime::Ladder({1})).hit_rate(), 1);
}

TEST(StepTimes, AreMediansByTheSizeLaunchedWithLinesBetween) {
  const std::vector<LoggedStep> steps{elapsed_ms(1, 2, 9),   elapsed_ms(2, 2, 10),
                                      elapsed_ms(2, 2, 500), elapsed_ms(3, 4, 20),
                                      elapsed_ms(4, 4, 22),  elapsed_ms(8, 8, 41)};
  const auto times = StepTimes::fit(steps, true);
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ((*times)(1), 10);
  EXPECT_DOUBLE_EQ((*times)(2), 10);
  EXPECT_DOUBLE_EQ((*times)(4), 21);
  EXPECT_DOUBLE_EQ((*times)(6), 31);
  EXPECT_DOUBLE_EQ((*times)(14), 41 + 6 * (41.0 - 10) / 6);
  EXPECT_FALSE(StepTimes::fit(steps, false));
}

TEST(StepTimes, NeverFallAndLeaveEagerStepsOut) {
  std::vector<LoggedStep> steps{elapsed_ms(1, 1, 10), elapsed_ms(2, 2, 30), elapsed_ms(4, 4, 20),
                                elapsed_ms(8, 8, 50)};
  LoggedStep eager = elapsed_ms(2, 2, 900);
  eager.mode = "eager";
  steps.push_back(eager);
  const auto times = StepTimes::fit(steps, true);
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ((*times)(2), 25);
  EXPECT_DOUBLE_EQ((*times)(4), 25);
  EXPECT_DOUBLE_EQ(total_us({{1, 2}, {3, 1}, {9, 1}}, runtime::Ladder({2, 8}), *times),
                   2 * 25 + 50);
}

TEST(StepTimes, NeedTwoSizes) {
  EXPECT_FALSE(
      StepTimes::fit(std::vector<LoggedStep>{elapsed_ms(1, 2, 9), elapsed_ms(2, 2, 10)}, true));
  EXPECT_FALSE(StepTimes::fit(std::vector<LoggedStep>{step(0, 1), step(0, 2)}, true));
}

}  // namespace
}  // namespace encore::planning
