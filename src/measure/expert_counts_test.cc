#include "measure/expert_counts.h"

#include <numeric>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"
#include "measure/decoding.h"
#include "measure/drawn_experts.h"

namespace encore::measure {
namespace {

using engine::testing::Tiny;

loader::LoadOptions counting() {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 64, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.compile.passes = {count_experts_pass()};
  return options;
}

// The model has two layers of 16 experts, and each row chooses 3. The step has three rows of tokens
// and one row of padding.
TEST(ExpertCounts, AreThoseOfTheRowsOfEachStep) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadOptions options = counting();
  options.compile.passes.insert(options.compile.passes.begin(), drawn_experts_pass());
  loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kQwen3Moe), options);
  constexpr int64_t kRows = 3;
  engine::Engine engine(model, {.overlap = false});
  Decoding decoding(engine, {.batch = kRows, .context = 4, .warmup_tokens = 1, .steps = 8});
  clear_expert_counts(model.executor().loaded());
  constexpr int64_t kSteps = 5;
  for (int64_t i = 0; i < kSteps; ++i)
    (void)decoding.step();
  const ExpertCounts counts = read_expert_counts(model.executor().loaded());
  ASSERT_EQ(counts.layers.size(), 2U);
  for (const ExpertCounts::Layer& layer : counts.layers) {
    EXPECT_EQ(layer.num_steps, kSteps);
    ASSERT_EQ(layer.rows.size(), 16U);
    EXPECT_EQ(std::accumulate(layer.rows.begin(), layer.rows.end(), int64_t{0}),
              kSteps * kRows * 3);
    for (size_t e = 0; e < layer.rows.size(); ++e) {
      EXPECT_LE(layer.steps[e], layer.rows[e]);
      EXPECT_LE(layer.rows[e], kRows * layer.steps[e]);
    }
  }
  EXPECT_GE(counts.distinct(), 3);
  EXPECT_LT(counts.distinct(), 9) << "no rows of a step share an expert";
  EXPECT_EQ(parse_expert_counts(expert_counts_text(counts), "text"), counts);
}

TEST(ExpertCounts, AreRefusedOfAModelWithoutExperts) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kLlama), counting());
  EXPECT_THROW((void)read_expert_counts(model.executor().loaded()), Error);
}

TEST(ExpertCounts, AreReadFromTextThatHasThemForEachExpert) {
  EXPECT_THROW((void)parse_expert_counts("{}", "text"), Error);
  EXPECT_THROW((void)parse_expert_counts(
                   R"({"layers": [{"steps": 1, "rows": [1, 2], "in_steps": [1]}]})", "text"),
               Error);
  EXPECT_THROW((void)parse_expert_counts(
                   R"({"layers": [{"steps": 1, "rows": [-1], "in_steps": [1]}]})", "text"),
               Error);
  const ExpertCounts counts = parse_expert_counts(
      R"({"layers": [{"steps": 4, "rows": [7, 0, 5], "in_steps": [4, 0, 2]}]})", "text");
  EXPECT_EQ(counts.layers.at(0).rows, (std::vector<int64_t>{7, 0, 5}));
  EXPECT_EQ(counts.distinct(), 1.5);
}

}  // namespace
}  // namespace encore::measure
