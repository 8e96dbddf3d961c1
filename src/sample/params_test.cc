#include "sample/params.h"

#include <algorithm>
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
  EXPECT_NE(problem({.top_k = -2})->find("top_k"), std::string::npos);
  EXPECT_NE(problem({.top_p = -0.1F})->find("top_p"), std::string::npos);
  EXPECT_NE(problem({.top_p = nan})->find("top_p"), std::string::npos);
  EXPECT_NE(problem({.min_p = 1})->find("min_p"), std::string::npos);
  EXPECT_EQ(problem({.typical_p = 0}), "typical_p is above 0 and at most 1, not 0");
  EXPECT_EQ(problem({.presence_penalty = -3}),
            "presence_penalty is at least -2 and at most 2, not -3");
  EXPECT_EQ(problem({.repetition_penalty = 0}),
            "repetition_penalty is above 0 and at most 10, not 0");
  EXPECT_NE(problem({.num_logprobs = 21})->find("num_logprobs"), std::string::npos);
  EXPECT_NE(problem({.num_logprobs = -2})->find("num_logprobs"), std::string::npos);
  EXPECT_EQ(problem({.num_logprobs = -1}), std::nullopt);
}

TEST(SamplingParams, TakeOnlyNumbersThatTheirFieldsHold) {
  SamplingParams params;
  const auto set_one = [&](std::string_view name, double value) {
    const auto all = parameters();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
    return set(*found, value, params);
  };
  EXPECT_FALSE(problem({.top_p = 0}));
  EXPECT_TRUE(set_one("top_p", 0.5));
  EXPECT_EQ(params.top_p, 0.5F);
  EXPECT_TRUE(set_one("top_k", 20));
  EXPECT_EQ(params.top_k, 20);
  EXPECT_FALSE(set_one("top_k", 20.5));
  EXPECT_FALSE(set_one("top_k", 1e12));
  EXPECT_FALSE(set_one("seed", 1e19));
  EXPECT_TRUE(set_one("seed", -5));
  EXPECT_EQ(params.seed, -5);
}

TEST(SamplingParams, DefaultsAreWhatTheTableAllows) {
  const SamplingParams defaults;
  for (const Parameter& parameter : parameters()) {
    std::visit([&](auto field) { EXPECT_TRUE(parameter.holds(defaults.*field)) << parameter.name; },
               parameter.field);
  }
}

}  // namespace
}  // namespace encore::sample
