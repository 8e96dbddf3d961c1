#include "base/statistics.h"

#include <gtest/gtest.h>

namespace encore {
namespace {

TEST(Statistics, MedianIsTheMiddleOrBetweenTheTwoInTheMiddle) {
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({8, 2, 4, 100}), 6);
}

TEST(Statistics, QuantileInterpolatesBetweenNeighbours) {
  EXPECT_EQ(quantile({30, 10, 20}, 0), 10);
  EXPECT_EQ(quantile({30, 10, 20}, 1), 30);
  EXPECT_EQ(quantile({30, 10, 20}, 0.25), 15);
}

}  // namespace
}  // namespace encore
