#include "runtime/ladder.h"

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

TEST(Ladder, HasThe42TokenSizesUpTo2048) {
  const auto sizes = Ladder::tokens(2048).sizes();
  EXPECT_EQ(sizes.size(), 42U);
  EXPECT_EQ(sizes.front(), 4);
  EXPECT_EQ(sizes.back(), 2048);
}

TEST(Ladder, IncludesItsMaximum) {
  EXPECT_EQ(Ladder::sequences(5).sizes(), (std::vector<int64_t>{1, 2, 4, 5}));
  EXPECT_EQ(Ladder::sequences(1).sizes(), (std::vector<int64_t>{1}));
  EXPECT_EQ(Ladder::tokens(3).sizes(), (std::vector<int64_t>{3}));
  EXPECT_EQ(Ladder::tokens(5000).sizes().back(), 5000);
}

TEST(Ladder, ReadsAListAndRefusesOthers) {
  EXPECT_EQ(Ladder::parse("4,1,2").sizes(), (std::vector<int64_t>{1, 2, 4}));
  EXPECT_THROW(Ladder::parse("1,x"), Error);
  EXPECT_THROW(Ladder::parse("0"), Error);
}

}  // namespace
}  // namespace encore::runtime
