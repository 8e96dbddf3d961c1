#include "runtime/ladder.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore::runtime {
namespace {

TEST(Ladder, PadsUpToTheNextBucket) {
  const Ladder ladder({8, 1, 4, 2, 4});
  EXPECT_EQ(ladder.sizes(), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(ladder.bucket(0), 1);
  EXPECT_EQ(ladder.bucket(3), 4);
  EXPECT_EQ(ladder.bucket(8), 8);
  EXPECT_EQ(ladder.bucket(9), std::nullopt);
}

TEST(Ladder, HasThe51DecodeSizes) {
  const auto sizes = Ladder::sequences(512).sizes();
  EXPECT_EQ(sizes.size(), 51U);
  EXPECT_EQ(sizes[3], 8);
  EXPECT_EQ(sizes[34], 256);
  EXPECT_EQ(sizes[35], 272);
  EXPECT_EQ(sizes.back(), 512);
}

TEST(Ladder, Has38TokenSizesUpTo2048) {
  const auto sizes = Ladder::tokens(2048).sizes();
  EXPECT_EQ(sizes.size(), 38U);
  EXPECT_EQ(sizes.front(), 4);
  EXPECT_EQ(sizes.back(), 2048);
}

TEST(Ladder, HasAtMostTwoSizesOfMixedSteps) {
  EXPECT_EQ(Ladder::mixed_sequences(256).sizes(), (std::vector<int64_t>{64, 256}));
  EXPECT_EQ(Ladder::mixed_sequences(40).sizes(), (std::vector<int64_t>{10, 40}));
  EXPECT_EQ(Ladder::mixed_sequences(32).sizes(), (std::vector<int64_t>{8, 32}));
  EXPECT_EQ(Ladder::mixed_sequences(31).sizes(), (std::vector<int64_t>{31}));
  EXPECT_EQ(Ladder::mixed_sequences(3).sizes(), (std::vector<int64_t>{3}));
}

TEST(Ladder, IncludesItsMaximum) {
  EXPECT_EQ(Ladder::sequences(5).sizes(), (std::vector<int64_t>{1, 2, 4, 5}));
  EXPECT_EQ(Ladder::sequences(1).sizes(), (std::vector<int64_t>{1}));
  EXPECT_EQ(Ladder::tokens(3).sizes(), (std::vector<int64_t>{3}));
  EXPECT_EQ(Ladder::tokens(5000).sizes().back(), 5000);
}

TEST(Ladder, DoublesAsFarAsNumbersGo) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> sizes = sizes_in(std::array{SizeRange{1, kMost, 0}}, kMost);
  EXPECT_EQ(sizes.size(), 63U);
  EXPECT_EQ(sizes.back(), int64_t{1} << 62);
}

TEST(Ladder, SortsItsSizesAndRefusesThoseThatAreNotPositive) {
  EXPECT_EQ(Ladder({4, 1, 2, 4}).sizes(), (std::vector<int64_t>{1, 2, 4}));
  EXPECT_THROW(Ladder({0, 1}), Error);
}

TEST(Ladder, IsCappedAtAMaximum) {
  const Ladder ladder({4, 8, 16});
  EXPECT_EQ(ladder.capped(16).sizes(), (std::vector<int64_t>{4, 8, 16}));
  EXPECT_EQ(ladder.capped(15).sizes(), (std::vector<int64_t>{4, 8, 15}));
  EXPECT_EQ(ladder.capped(8).sizes(), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(ladder.capped(2).sizes(), (std::vector<int64_t>{2}));
}

TEST(Ladder, CoversEveryStepUpToTheMaximumOfItsDefaults) {
  for (int64_t max = 1; max <= 1200; ++max) {
    EXPECT_EQ(Ladder::sequences(max).sizes().back(), max);
    EXPECT_EQ(Ladder::tokens(max).sizes().back(), max);
  }
  EXPECT_EQ(Ladder::sequences(550).sizes().size(), 51U + 3U);  // 51 up to 512; 528, 544, 550
}

TEST(Ladder, HasEverySizeWhenRecordedOnDemand) {
  const Ladder ladder = Ladder::on_demand(32, 5);
  EXPECT_EQ(ladder.sizes(), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(ladder.lru(), 32);
  EXPECT_FALSE(Ladder::sequences(5).lru().has_value());
}

}  // namespace
}  // namespace encore::runtime
