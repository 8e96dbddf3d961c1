#include "measure/ladder_times.h"

#include <gtest/gtest.h>

namespace encore::measure {
namespace {

TEST(LadderSummary, NamesTheWorstBucketAndTheLargestChange) {
  const std::vector<BucketTime> times = {
      {1, 110, 100}, {2, 111, 100}, {4, 150, 120}, {8, 151, 140}};
  const LadderSummary summary = summarize(times);
  EXPECT_EQ(summary.worst, 2U);           // its time is 1.25 times its floor
  EXPECT_EQ(summary.largest_change, 3U);  // the ratio falls from 1.25 to 1.079
  EXPECT_NEAR(summary.change, 151.0 / 140 / 1.25 - 1, 1e-12);
  EXPECT_EQ(summarize({{1, 110, 100}}).largest_change, 0U);
}

}  // namespace
}  // namespace encore::measure
