#include "measure/drawn_experts.h"

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"
#include "loader/loaded_model.h"
#include "measure/decoding.h"

namespace encore::measure {
namespace {

passes::Program compiled(std::string_view name, std::optional<passes::Pass> pass) {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 64, .max_batch_size = 64, .max_q = 1, .max_seq_len = 64};
  if (pass) options.compile.passes = {*pass};
  model::ModelConfig config = *model::preset(name);
  config.layers.resize(6);
  return loader::compile_model({config, std::nullopt}, options, /*num_pages=*/4);
}

// The model has 128 experts, and each row chooses 8 of them.
TEST(DrawnExperts, DrawsAsManyDistinctExpertsAsAreExpected) {
  const passes::Program program = compiled("qwen3-30b-a3b", drawn_experts_pass());
  for (const auto& [rows, expected] : {std::pair{1, 8.0}, {8, 51.62}, {64, 125.94}}) {
    const auto distinct = distinct_experts(program.graph, rows, 32);
    ASSERT_TRUE(distinct && distinct->drawn);
    EXPECT_EQ(distinct->num_experts, 128);
    EXPECT_NEAR(distinct->expected, expected, 0.01) << rows;
    EXPECT_NEAR(*distinct->drawn / expected, 1, 0.02) << rows;
  }
}

TEST(DrawnExperts, IsThatOfTheModelWhereNobodyAsks) {
  const auto distinct = distinct_experts(compiled("qwen3-30b-a3b", {}).graph, 8, 32);
  ASSERT_TRUE(distinct.has_value());
  EXPECT_EQ(distinct->drawn, std::nullopt);
  EXPECT_EQ(distinct_experts(compiled("qwen3-0.6b", drawn_experts_pass()).graph, 8, 32),
            std::nullopt);
}

// In the recorded run, the first 16 of 128 experts were chosen equally often. So rows draw their 8
// experts from these 16, except for about one draw in 1000 (kShareForAll), for which all experts
// are equally likely.
TEST(DrawnExperts, FollowTheCountsOfARecordedRun) {
  ExpertCounts counts;
  for (int i = 0; i < 6; ++i) {
    ExpertCounts::Layer layer{.rows = std::vector<int64_t>(128),
                              .steps = std::vector<int64_t>(128)};
    std::fill_n(layer.rows.begin(), 16, 100);
    counts.layers.push_back(std::move(layer));
  }
  const passes::Program program = compiled("qwen3-30b-a3b", recorded_experts_pass());
  const auto of_one = distinct_experts(program.graph, 1, 32, &counts);
  ASSERT_TRUE(of_one && of_one->drawn);
  EXPECT_EQ(*of_one->drawn, 8);
  EXPECT_NEAR(*distinct_experts(program.graph, 64, 32, &counts)->drawn, 16.5, 0.5);
}

// The device draws experts by the same rule as the simulation on the host. So the device counts as
// many distinct experts as distinct_experts() simulates.
TEST(DrawnExperts, AreThoseThatTheDeviceCounts) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 64, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.compile.passes = {recorded_experts_pass(), count_experts_pass()};
  loader::LoadedModel model(*device, engine::testing::tiny_model(engine::testing::Tiny::kQwen3Moe),
                            options);
  ExpertCounts counts;
  counts.layers.resize(2, {.rows = std::vector<int64_t>(16), .steps = std::vector<int64_t>(16)});
  counts.layers[0].rows[3] = counts.layers[0].rows[5] = counts.layers[0].rows[9] = 50;
  counts.layers[1].rows.assign(16, 1);
  runtime::LoadedProgram& loaded = model.executor().loaded();
  draw_by(counts, loaded);
  engine::Engine engine(model, {.overlap = false});
  Decoding decoding(engine, {.batch = 4, .context = 4, .warmup_tokens = 1, .steps = 24});
  clear_expert_counts(loaded);
  for (int i = 0; i < 20; ++i)
    (void)decoding.step();
  const ExpertCounts found = read_expert_counts(loaded);
  for (const size_t expert : {3, 5, 9})
    // In 20 steps of 4 sequences, 80 rows chose 3 experts each: nearly always the 3 experts that
    // the counts of this layer name.
    EXPECT_GE(found.layers.at(0).rows[expert], 76) << expert;
  EXPECT_LE(*std::ranges::max_element(found.layers.at(1).rows), 40);

  counts.layers.pop_back();
  EXPECT_THROW(draw_by(counts, loaded), Error);
}

}  // namespace
}  // namespace encore::measure
