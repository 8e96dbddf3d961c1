#include <algorithm>
#include <cstdlib>
#include <random>

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include "base/json.h"
#include "grammar/testing/sampled_answer.h"
#include "grammar/testing/validity.h"

namespace encore::grammar {
namespace {

using testing::Answer;
using testing::Clock;
using testing::compiled;
using testing::is_valid;
using testing::Model;
using testing::sample;

// Returns a random schema whose values have a bounded length.
json::value random_schema(std::mt19937_64& random, int depth) {
  const auto below = [&](uint64_t n) { return random() % n; };
  switch (below(depth > 0 ? 10 : 7)) {
    case 0:
      return {{"type", "boolean"}};
    case 1:
      return {{"type", "null"}};
    case 2:
      return {
          {"type", "integer"}, {"minimum", -20 + static_cast<int>(below(20))}, {"maximum", 1000}};
    case 3:
      return {{"type", "string"}, {"minLength", below(3)}, {"maxLength", 3 + below(9)}};
    case 4:
      return {{"type", "string"}, {"pattern", "^[a-c]{2,5}-[0-9]{1,3}$"}};
    case 5:
      return {{"enum", {"red", "blue \"or\" \\ so", 7, nullptr, true, "r\u00e9d"}}};
    case 6:
      return {{"type", "string"}, {"pattern", "^[ -~]{1,6}[A-Z\"]$"}};
    case 7:
      return {{"type", "array"},
              {"items", random_schema(random, depth - 1)},
              {"minItems", below(2)},
              {"maxItems", 1 + below(3)}};
    case 8:
      return {{"anyOf", {random_schema(random, depth - 1), random_schema(random, depth - 1)}}};
    default:
      break;
  }
  json::object properties;
  json::array required;
  const uint64_t num_properties = 1 + below(4);
  for (uint64_t i = 0; i < num_properties; ++i) {
    const std::string key = fmt::format("key {}", i);
    properties[key] = random_schema(random, depth - 1);
    if (below(3) > 0) required.emplace_back(key);
  }
  return {{"type", "object"}, {"properties", properties}, {"required", required}};
}

// Samples answers to random schemas and checks them. Expects that enough of the answers are
// complete, and prints how long compilation and masks took.
void expect_answers_that_fit(const Model& model, int64_t num_schemas) {
  std::mt19937_64 random(7);
  int64_t num_whole = 0;
  std::vector<Clock::duration> compile_times;
  std::vector<Clock::duration> fill_times;
  for (int64_t i = 0; i < num_schemas; ++i) {
    const json::value schema = random_schema(random, 3);
    const std::string text = json::to_text(schema);
    const auto start = Clock::now();
    const Grammar grammar = compiled(model, {.kind = SourceKind::kJsonSchema, .text = text});
    compile_times.push_back(Clock::now() - start);
    const Answer answer = sample(model, grammar, random(), 600, &fill_times);
    if (!answer.is_whole) continue;  // incomplete, though each of its tokens was allowed
    ++num_whole;
    boost::system::error_code error;
    const json::value value = boost::json::parse(answer.text, error);
    ASSERT_FALSE(error) << answer.text << "\nof " << text;
    EXPECT_TRUE(is_valid(value, schema)) << answer.text << "\nof " << text;
  }
  EXPECT_GT(num_whole, num_schemas * 3 / 4);
  const auto microseconds = [](std::vector<Clock::duration>& times, double share) {
    std::sort(times.begin(), times.end());
    const Clock::duration time = times.at(static_cast<size_t>(share * (times.size() - 1)));
    return std::chrono::duration<double, std::micro>(time).count();
  };
  fmt::print(
      "{} of {} whole; p50 and p99: compiled in {:.0f} and {:.0f} us, {} masks in {:.1f} and "
      "{:.1f} us\n",
      num_whole, num_schemas, microseconds(compile_times, 0.5), microseconds(compile_times, 0.99),
      fill_times.size(), microseconds(fill_times, 0.5), microseconds(fill_times, 0.99));
}

class RandomSchemas : public testing::OfAModel {};
INSTANTIATE_TEST_SUITE_P(Tokenizers, RandomSchemas, testing::tokenizers(), testing::tokenizer_name);

TEST_P(RandomSchemas, HoldRandomAnswers) {
  expect_answers_that_fit(model, 40);
}

// Runs only with a tokenizer from the environment: ENCORE_TOKENIZER=FOLDER grammar_test
// --gtest_filter='*LargeVocabulary*'
TEST(LargeVocabulary, HasAThousandSchemasHoldRandomAnswers) {
  const char* const folder = std::getenv("ENCORE_TOKENIZER");
  if (folder == nullptr) GTEST_SKIP() << "ENCORE_TOKENIZER names no folder of a tokenizer.json";
  const Model model(text::Tokenizer::load(folder));
  EXPECT_GE(model.tokenizer.vocab_size(), 50'000);
  expect_answers_that_fit(model, 1000);
}

}  // namespace
}  // namespace encore::grammar
