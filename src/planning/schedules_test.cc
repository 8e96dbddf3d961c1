#include "planning/schedules.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace encore::planning {
namespace {

using runtime::Ladder;

std::vector<int64_t> named(const std::string& text, int64_t max) {
  return named_or_list(text, max).sizes();
}

std::string refusal(const std::string& text, int64_t max) {
  return message_of(ErrorKind::kUsage, [&] { (void)named(text, max); });
}

TEST(Schedules, HasTheDefaultsOfBothKindsOfStepByName) {
  for (const int64_t max : {1, 5, 100, 600, 2048, 5000}) {
    EXPECT_EQ(named("encore", max), Ladder::tokens(max).sizes());
    EXPECT_EQ(named("encore-decode", max), Ladder::sequences(max).sizes());
  }
  EXPECT_EQ(named("encore", 2048).size(), 38U);
}

TEST(Schedules, KnowsTheSchedulesOfOtherEnginesByTheirNumberOfSizes) {
  EXPECT_EQ(named("vllm-old", 512).size(), 67U);
  EXPECT_EQ(named("vllm", 512).size(), 51U);
  EXPECT_EQ(named("trtllm", 3072).size(), 20U);
  EXPECT_EQ(named("sglang", 2048).size(), 42U);
  EXPECT_EQ(named("vllm", 512), Ladder::sequences(512).sizes());
}

TEST(Schedules, KnowsWhatOtherEnginesTakeForSequences) {
  // The sizes are 1, 2, 4, then 8 to 128 by 8, then 256, 512 and 600.
  EXPECT_EQ(named("trtllm-decode", 600).size(), 3U + 16U + 3U);
  EXPECT_EQ(named("sglang-decode", 20), (std::vector<int64_t>{1, 2, 4, 8, 12, 16, 20}));
  EXPECT_EQ(named("sglang-decode", 576).size(), 5U + 31U + 16U + 2U);
  for (const Schedule& schedule : schedules()) {
    for (const int64_t size : {1, 3, 13, 129, 257, 500, 513, 2000}) {
      const int64_t bucket = schedule.bucket(8, size);
      const bool ends_before = schedule.end && *schedule.end < size;
      EXPECT_EQ(bucket, ends_before ? size : schedule.ladder(8, 8192).bucket(size))
          << schedule.name;
    }
  }
}

TEST(Schedules, EndsASchedulesSizesAtItsOwnEndOrAtTheMaximum) {
  EXPECT_EQ(named("vllm", 100000).back(), 512);
  EXPECT_EQ(named("trtllm", 100000).back(), 3072);
  EXPECT_EQ(named("trtllm", 300), (std::vector<int64_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 300}));
  EXPECT_EQ(named("vllm-old", 20), (std::vector<int64_t>{1, 2, 4, 8, 16, 20}));
  EXPECT_EQ(named("sglang", 5000).back(), 5000);
}

TEST(Schedules, DoublesAndSteps) {
  EXPECT_EQ(named("pow2", 20), (std::vector<int64_t>{1, 2, 4, 8, 16, 20}));
  EXPECT_EQ(named("pow2", int64_t{1} << 62).size(), 63U);
  EXPECT_EQ(named("step:4", 14), (std::vector<int64_t>{1, 2, 3, 4, 8, 12, 14}));
  EXPECT_EQ(named("step:1", 3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(named("step:9", 4), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(Schedules, TakesAListWhereItTakesAName) {
  EXPECT_EQ(named("8,1,2", 8), (std::vector<int64_t>{1, 2, 8}));
  EXPECT_NE(refusal("8,1,2", 7).find("size 8 is above the largest step of 7"), std::string::npos);
  for (const char* text :
       {"", ",", "0,1", "1,x", "step:", "step:0", "step:-1", "step:N", "step:4x"})
    EXPECT_NE(refusal(text, 64), "") << text;
}

TEST(Schedules, RefusesAnUnknownNameWithThoseThereAre) {
  EXPECT_NE(refusal("vllm-new", 64).find("pow2, step:N, vllm-old, vllm, trtllm, sglang"),
            std::string::npos);
}

TEST(Schedules, RefusesMoreSizesThanAnyDeviceHolds) {
  EXPECT_NE(refusal("step:1", int64_t{1} << 40).find("more than 65536"), std::string::npos);
}

TEST(Schedules, HasEverySizeWhenRecordedOnDemand) {
  const Ladder ladder = named_or_list("lru:32", 5);
  EXPECT_EQ(ladder.sizes(), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(ladder.lru(), 32);
  EXPECT_FALSE(named_or_list("pow2", 5).lru().has_value());
  for (const char* text : {"lru:", "lru:0", "lru:-1", "lru:5000", "lru:x", "lru:3x"})
    EXPECT_NE(refusal(text, 5).find("lru:N is 1 to 4096"), std::string::npos) << text;
}

}  // namespace
}  // namespace encore::planning
