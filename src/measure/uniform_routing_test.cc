#include "measure/uniform_routing.h"

#include <gtest/gtest.h>

#include "loader/loaded_model.h"

namespace encore::measure {
namespace {

passes::Program compiled(std::string_view name, bool uniform) {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 64, .max_batch_size = 64, .max_q = 1, .max_seq_len = 64};
  if (uniform) options.compile.passes = {uniform_routing_pass()};
  model::ModelConfig config = *model::preset(name);
  config.layers.resize(6);
  return loader::compile_model({config, std::nullopt}, options, /*num_pages=*/4);
}

// 128 experts, of which a row has 8.
TEST(UniformRouting, DrawsAsManyDistinctExpertsAsAreExpected) {
  const passes::Program program = compiled("qwen3-30b-a3b", true);
  for (const auto& [rows, expected] : {std::pair{1, 8.0}, {8, 51.62}, {64, 125.94}}) {
    const auto distinct = distinct_experts(program.graph, rows, 32);
    ASSERT_TRUE(distinct && distinct->drawn);
    EXPECT_EQ(distinct->num_experts, 128);
    EXPECT_NEAR(distinct->expected, expected, 0.01) << rows;
    EXPECT_NEAR(*distinct->drawn / expected, 1, 0.02) << rows;
  }
}

TEST(UniformRouting, IsThatOfTheModelWhereNobodyAsks) {
  const auto distinct = distinct_experts(compiled("qwen3-30b-a3b", false).graph, 8, 32);
  ASSERT_TRUE(distinct.has_value());
  EXPECT_EQ(distinct->drawn, std::nullopt);
  EXPECT_EQ(distinct_experts(compiled("qwen3-0.6b", true).graph, 8, 32), std::nullopt);
}

}  // namespace
}  // namespace encore::measure
