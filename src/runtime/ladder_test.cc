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

std::vector<int64_t> named(const std::string& text, int64_t max) {
  return Ladder::named_or_list(text, max).sizes();
}

std::string refusal(const std::string& text, int64_t max) {
  try {
    (void)named(text, max);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

TEST(Ladder, KnowsTheSchedulesOfOtherEnginesByTheirNumberOfSizes) {
  EXPECT_EQ(named("vllm-old", 512).size(), 67U);
  EXPECT_EQ(named("vllm", 512).size(), 51U);
  EXPECT_EQ(named("trtllm", 3072).size(), 20U);
  EXPECT_EQ(named("sglang", 2048).size(), 42U);
  EXPECT_EQ(named("vllm", 512), Ladder::sequences(512).sizes());
  EXPECT_EQ(named("sglang", 9000), Ladder::tokens(9000).sizes());
}

TEST(Ladder, EndsASchedulesSizesAtItsOwnEndOrAtTheMaximum) {
  EXPECT_EQ(named("vllm", 100000).back(), 512);
  EXPECT_EQ(named("trtllm", 100000).back(), 3072);
  EXPECT_EQ(named("trtllm", 300), (std::vector<int64_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 300}));
  EXPECT_EQ(named("vllm-old", 20), (std::vector<int64_t>{1, 2, 4, 8, 16, 20}));
  EXPECT_EQ(named("sglang", 5000).back(), 5000);
}

TEST(Ladder, DoublesAndSteps) {
  EXPECT_EQ(named("pow2", 20), (std::vector<int64_t>{1, 2, 4, 8, 16, 20}));
  EXPECT_EQ(named("pow2", int64_t{1} << 62).size(), 63U);
  EXPECT_EQ(named("step:4", 14), (std::vector<int64_t>{1, 2, 3, 4, 8, 12, 14}));
  EXPECT_EQ(named("step:1", 3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(named("step:9", 4), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(Ladder, CoversEveryStepUpToTheMaximumOfItsDefaults) {
  for (int64_t max = 1; max <= 1200; ++max) {
    EXPECT_EQ(Ladder::sequences(max).sizes().back(), max);
    EXPECT_EQ(Ladder::tokens(max).sizes().back(), max);
  }
  EXPECT_EQ(Ladder::sequences(550).sizes().size(), 51U + 3U);  // 528, 544, 550
}

TEST(Ladder, TakesAListWhereItTakesAName) {
  EXPECT_EQ(named("8,1,2", 8), (std::vector<int64_t>{1, 2, 8}));
  EXPECT_NE(refusal("8,1,2", 7).find("size 8 is above the largest step of 7"), std::string::npos);
  for (const char* text :
       {"", ",", "0,1", "1,x", "step:", "step:0", "step:-1", "step:N", "step:4x"})
    EXPECT_NE(refusal(text, 64), "") << text;
}

TEST(Ladder, RefusesAnUnknownNameWithThoseThereAre) {
  EXPECT_NE(refusal("vllm-new", 64).find("pow2, step:N, vllm-old, vllm, trtllm, sglang"),
            std::string::npos);
}

TEST(Ladder, RefusesMoreSizesThanAnyDeviceHolds) {
  EXPECT_NE(refusal("step:1", int64_t{1} << 40).find("more than 65536"), std::string::npos);
}

TEST(Ladder, HasEverySizeWhenRecordedOnDemand) {
  const Ladder ladder = Ladder::named_or_list("lru:32", 5);
  EXPECT_EQ(ladder.sizes(), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(ladder.lru(), 32);
  EXPECT_FALSE(Ladder::named_or_list("pow2", 5).lru().has_value());
  for (const char* text : {"lru:", "lru:0", "lru:-1", "lru:5000", "lru:x", "lru:3x"})
    EXPECT_NE(refusal(text, 5).find("lru:N is 1 to 4096"), std::string::npos) << text;
}

}  // namespace
}  // namespace encore::runtime
