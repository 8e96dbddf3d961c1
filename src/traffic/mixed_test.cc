#include "traffic/mixed.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace encore::traffic {
namespace {

class AnyTokens final : public sample::TokenGrammar {
 public:
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override { return nullptr; }
};

MixedTraffic traffic() {
  return {.seconds = 100,
          .requests_per_s = 10,
          .max_input_tokens = 1500,
          .max_output_tokens = 200,
          .vocab_size = 1000,
          .grammar = std::make_shared<AnyTokens>()};
}

// Returns the number of requests for which `is` holds.
template <typename Is>
int64_t count(const std::vector<Request>& requests, const Is& is) {
  return std::count_if(requests.begin(), requests.end(),
                       [&](const Request& request) { return is(request); });
}

TEST(MixedRequests, ComeInOrderForAsLongAsTheyAreToAndKeepToTheirLengths) {
  const std::vector<Request> requests = mixed_requests(traffic());
  EXPECT_GT(std::ssize(requests), 900);
  EXPECT_LE(requests.back().arrival_s, 100);
  EXPECT_TRUE(std::is_sorted(requests.begin(), requests.end(), [](const auto& a, const auto& b) {
    return a.arrival_s < b.arrival_s;
  }));
  for (const auto& [arrival_s, asked, leaves_after_s] : requests) {
    EXPECT_TRUE(!asked.prompt.empty() && std::ssize(asked.prompt) <= 1500);
    EXPECT_TRUE(asked.max_tokens >= 1 && asked.max_tokens <= 200);
    EXPECT_LE(asked.min_tokens, asked.max_tokens);
    EXPECT_FALSE(sample::problem(asked.sampling).has_value());
    EXPECT_TRUE(std::all_of(asked.prompt.begin(), asked.prompt.end(),
                            [](int32_t token) { return token >= 0 && token < 1000; }));
  }
  // The logarithms of lengths from 1 to 1500 are uniform, so half of the lengths are below 39, the
  // square root of 1500.
  const auto is_short = [](const Request& request) { return request.asked.prompt.size() < 39; };
  EXPECT_NEAR(count(requests, is_short), std::ssize(requests) / 2, 60);
}

TEST(MixedRequests, AreOfEveryKind) {
  const std::vector<Request> requests = mixed_requests(traffic());
  const auto has = [&](const auto& is) {
    const int64_t number = count(requests, is);
    return number > 0 && number < std::ssize(requests);
  };
  for (const sample::Parameter& parameter : sample::parameters()) {
    const auto differs = [&](const Request& request) {
      return std::visit(
          [&](auto field) {
            return request.asked.sampling.*field != sample::SamplingParams().*field;
          },
          parameter.field);
    };
    EXPECT_TRUE(has(differs)) << parameter.name;
  }
  EXPECT_TRUE(has([](const Request& r) { return r.asked.sampling.num_logprobs >= 0; }));
  EXPECT_TRUE(has([](const Request& r) { return r.asked.num_prompt_logprobs >= 0; }));
  EXPECT_TRUE(has([](const Request& r) { return !r.asked.stop_tokens.empty(); }));
  EXPECT_TRUE(has([](const Request& r) { return !r.asked.token_bias.empty(); }));
  EXPECT_TRUE(has([](const Request& r) { return r.asked.min_tokens > 0; }));
  EXPECT_TRUE(has([](const Request& r) { return r.asked.grammar != nullptr; }));
  EXPECT_TRUE(has([](const Request& r) { return r.asked.priority != 0; }));
  EXPECT_TRUE(has([](const Request& r) { return !r.asked.cache_salt.empty(); }));
  EXPECT_TRUE(has([](const Request& r) { return r.leaves_after_s.has_value(); }));
}

TEST(MixedRequests, ShareBeginningsAndWholePrompts) {
  const std::vector<Request> requests = mixed_requests(traffic());
  std::set<std::vector<int32_t>> beginnings;
  std::set<std::vector<int32_t>> prompts;
  int64_t num_long = 0;
  for (const auto& [arrival_s, asked, leaves_after_s] : requests) {
    prompts.insert(asked.prompt);
    if (std::ssize(asked.prompt) < 512) continue;
    ++num_long;
    beginnings.emplace(asked.prompt.begin(), asked.prompt.begin() + 512);
  }
  EXPECT_LT(std::ssize(beginnings), num_long * 9 / 10);
  EXPECT_LT(std::ssize(prompts), std::ssize(requests) - 50);
}

TEST(MixedRequests, AreAFunctionOfTheirSeed) {
  const auto arrival_and_prompt = [](const Request& request) {
    return std::pair(request.arrival_s, request.asked.prompt);
  };
  MixedTraffic other = traffic();
  other.seed = 2;
  const auto first = mixed_requests(traffic()).front();
  EXPECT_EQ(arrival_and_prompt(first), arrival_and_prompt(mixed_requests(traffic()).front()));
  EXPECT_NE(arrival_and_prompt(first), arrival_and_prompt(mixed_requests(other).front()));
}

}  // namespace
}  // namespace encore::traffic
