#include "base/rounding.h"

#include <gtest/gtest.h>

namespace encore {
namespace {

TEST(Rounding, DivUpCountsTheLastPartThatIsNotFull) {
  EXPECT_EQ(div_up(0, 4), 0);
  EXPECT_EQ(div_up(1, 4), 1);
  EXPECT_EQ(div_up(4, 4), 1);
  EXPECT_EQ(div_up(5, 4), 2);
}

TEST(Rounding, RoundUpLeavesMultiplesAlone) {
  EXPECT_EQ(round_up(0, 3), 0);
  EXPECT_EQ(round_up(1, 3), 3);
  EXPECT_EQ(round_up(6, 3), 6);
  EXPECT_EQ(round_up(7, 3), 9);
  EXPECT_EQ(round_up((int64_t{1} << 40) + 1, 4096), (int64_t{1} << 40) + 4096);
}

}  // namespace
}  // namespace encore
