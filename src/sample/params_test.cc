#include "sample/params.h"

#include <limits>

#include <gtest/gtest.h>

namespace encore::sample {
namespace {

TEST(SamplingParams, DefaultsAreGood) {
  EXPECT_EQ(problem({}), std::nullopt);
}

TEST(SamplingParams, NameTheFieldThatIsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(problem({.temperature = -1})->find("temperature"), std::string::npos);
  EXPECT_NE(problem({.temperature = nan})->find("temperature"), std::string::npos);
  EXPECT_NE(problem({.top_k = -1})->find("top_k"), std::string::npos);
  EXPECT_NE(problem({.top_p = 0})->find("top_p"), std::string::npos);
  EXPECT_NE(problem({.top_p = nan})->find("top_p"), std::string::npos);
  EXPECT_NE(problem({.min_p = 1})->find("min_p"), std::string::npos);
}

}  // namespace
}  // namespace encore::sample
