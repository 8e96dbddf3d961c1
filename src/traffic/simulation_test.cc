#include "traffic/simulation.h"

#include <random>

#include <gtest/gtest.h>

#include "engine/serving_loop.h"
#include "engine/testing/tiny_model.h"
#include "traffic/figures.h"

namespace encore::traffic {
namespace {

// A cost by which every step takes the device one second, and the host no time.
const StepCost kASecond{.decode = {.constant_us = 1e6}, .mixed = {.constant_us = 1e6}};

loader::LoadOptions load_options() {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 64, .max_batch_size = 8, .max_q = 1, .max_seq_len = 256};
  options.kv_tokens = 512;
  return options;
}

// Makes requests of two priorities that come at once. Every third has the beginning of another.
std::vector<Request> some_requests(int count) {
  std::mt19937 random(11);
  const auto between = [&](int first, int last) {
    return first + static_cast<int>(random() % static_cast<uint32_t>(last - first + 1));
  };
  std::vector<int32_t> beginning;
  for (int i = 0; i < 70; ++i)
    beginning.push_back(between(0, 999));
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request{.asked = {.max_tokens = between(1, 100), .priority = between(0, 1)}};
    if (i % 3 == 0) request.asked.prompt = beginning;
    for (int n = between(1, 60); n > 0; --n)
      request.asked.prompt.push_back(between(0, 999));
    requests.push_back(std::move(request));
  }
  return requests;
}

class SimulationTest : public ::testing::Test {
 protected:
  [[nodiscard]] static SimulationOptions options_of(loader::LoadedModel& model) {
    return {.limits = model.limits(),
            .coverage = model.executor().coverage(),
            .num_pages = model.num_pages(),
            .page_size = model.page_size(),
            .window_rule = model.window_rule(),
            .num_window_pages = model.num_window_pages()};
  }
  [[nodiscard]] SimulationOptions options() { return options_of(model_); }

  // Serves the requests on a real engine and returns its statistics. All requests are submitted
  // before its first step.
  static engine::GeneratorStatistics serve(loader::LoadedModel& model,
                                           const std::vector<Request>& requests,
                                           const engine::EngineOptions& options) {
    engine::ServingLoop loop(model, {.engine = options});
    std::vector<engine::Submission> submissions;
    for (const Request& request : requests) {
      submissions.push_back({request.asked, [](const engine::Update&) {}});
    }
    EXPECT_EQ(loop.submit(std::move(submissions)).index(), 0U);
    loop.drain();
    loop.run();
    return loop.statistics();
  }

  // Expects a simulation to form the steps that the engine forms. Returns the simulation's record.
  static TrafficRecord expect_steps_of_the_engine(loader::LoadedModel& model,
                                                  const engine::EngineOptions& how) {
    const std::vector<Request> requests = some_requests(40);
    const engine::GeneratorStatistics served = serve(model, requests, how);
    SimulationOptions simulated = options_of(model);
    simulated.engine = how;
    TrafficRecord record = simulate(requests, simulated, kASecond);
    EXPECT_EQ(record.num_preemptions, served.num_preemptions);
    EXPECT_EQ(record.prefix_cache.value_or(kv::PrefixCacheStats{}).hit_tokens,
              served.prefix_cache.hit_tokens);
    EXPECT_EQ(record.steps.size(), served.steps.size());
    for (size_t i = 0; i < std::min(record.steps.size(), served.steps.size()); ++i) {
      EXPECT_EQ(record.steps[i].mode, served.steps[i].mode);
      EXPECT_EQ(record.steps[i].key, served.steps[i].key);
      EXPECT_EQ(record.steps[i].steps, served.steps[i].steps);
      EXPECT_EQ(record.steps[i].tokens, served.steps[i].tokens);
      EXPECT_EQ(record.steps[i].padding, served.steps[i].padding);
    }
    return record;
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 2});
  loader::LoadedModel model_{*device_, engine::testing::tiny_model(engine::testing::Tiny::kLlama),
                             load_options()};
};

TEST_F(SimulationTest, FormsTheStepsOfTheEngine) {
  for (const bool overlap : {false, true}) {
    for (const bool prefix_cache : {false, true}) {
      engine::EngineOptions how{
          .overlap = overlap, .prompt_share = 0.25, .preempts_by_priority = overlap};
      if (prefix_cache) how.prefix_cache.emplace();
      const TrafficRecord record = expect_steps_of_the_engine(model_, how);
      EXPECT_GT(record.num_preemptions, 0);
      EXPECT_EQ(record.prefix_cache.value_or(kv::PrefixCacheStats{}).hit_tokens > 0, prefix_cache);
    }
  }
}

// There are fewer pages for windows than the sequences want, so these pages decide which sequences
// are admitted.
TEST_F(SimulationTest, FormsTheStepsOfTheEngineWhereLayersKeepTheirWindowAlone) {
  model::ModelSource source = engine::testing::tiny_model(engine::testing::Tiny::kLlama);
  source.config.layers.at(0).window = 30;
  loader::LoadOptions options = load_options();
  options.page_size = 16;
  options.kv_tokens = 1024;
  options.window_pages = true;
  loader::LoadedModel model(*device_, source, options);
  ASSERT_TRUE(model.window_rule().has_value());
  loader::LoadOptions without = options;
  without.window_pages = false;
  loader::LoadedModel one_group(*device_, source, without);
  engine::EngineOptions how{.overlap = true};
  how.prefix_cache.emplace();
  const TrafficRecord record = expect_steps_of_the_engine(model, how);
  EXPECT_GT(record.prefix_cache.value().hit_tokens, 0);
  const TrafficRecord other = expect_steps_of_the_engine(one_group, how);
  EXPECT_NE(record.wall_s, other.wall_s) << "steps are those of one group";
}

TEST_F(SimulationTest, GivesEveryRequestItsTokens) {
  const std::vector<Request> requests = some_requests(40);
  const TrafficRecord record = simulate(requests, options(), kASecond);
  ASSERT_EQ(record.requests.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(record.requests[i].is_complete());
    EXPECT_EQ(record.requests[i].num_delivered(), requests[i].asked.max_tokens);
  }
}

// Decode steps take a second each, mixed steps a second for each token, padding included. The
// prompt of 100 tokens takes two mixed steps, of 64 tokens (the limit of a step) and of 36. After
// that, each step gives one token.
TEST_F(SimulationTest, TimeIsThatOfTheSteps) {
  const std::vector<Request> one = {
      {.arrival_s = 10, .asked = {.prompt = std::vector<int32_t>(100, 1), .max_tokens = 3}}};
  StepCost cost{
      .decode = {.constant_us = 1e6}, .mixed = {.us_per_token_above = {{0, 1e6}}}, .host_us = 0};
  SimulationOptions simulated = options();
  const TrafficRecord record = simulate(one, simulated, cost);
  const std::vector<Delivery>& deliveries = record.requests[0].deliveries;
  ASSERT_EQ(deliveries.size(), 3U);
  EXPECT_DOUBLE_EQ(deliveries[0].at_s, 10 + 64 + 48);  // 36 tokens are padded to the bucket of 48
  EXPECT_DOUBLE_EQ(deliveries[1].at_s, deliveries[0].at_s + 1);
  EXPECT_DOUBLE_EQ(deliveries[2].at_s, deliveries[0].at_s + 2);
  EXPECT_DOUBLE_EQ(record.wall_s, deliveries[2].at_s);
  EXPECT_EQ(record.mixed->steps, 2);
  EXPECT_DOUBLE_EQ(record.mixed->seconds, 64 + 48);
  EXPECT_EQ(record.decode->steps, 2);

  // Without overlap the host's time lies between the steps; with overlap the host works beside
  // them.
  cost.host_us = 0.25e6;
  EXPECT_DOUBLE_EQ(simulate(one, simulated, cost).wall_s, record.wall_s + 0.25);
  simulated.engine.overlap = false;
  EXPECT_DOUBLE_EQ(simulate(one, simulated, cost).wall_s, record.wall_s + 4 * 0.25);
}

// Where a step is over before the host looks, the time that the host sees is longer than the step's
// own. So the scheduler does not shrink the chunks of prompts because of that time.
TEST_F(SimulationTest, AHostThatIsLateTeachesTheBudgetOfPromptsNothing) {
  const engine::Request reads{.prompt = std::vector<int32_t>(200, 1), .max_tokens = 1};
  const std::vector<Request> three = {
      {.asked = {.prompt = {1, 2}, .max_tokens = 100}}, {.asked = reads}, {.asked = reads}};
  SimulationOptions simulated = options();
  StepCost cost{.decode = {.constant_us = 1e3}, .mixed = {.constant_us = 1e3}, .host_us = 50e3};
  const int64_t whole_chunks = simulate(three, simulated, cost).mixed->steps;
  simulated.engine.target_step_ms = 20;
  EXPECT_EQ(simulate(three, simulated, cost).mixed->steps, whole_chunks);
  std::swap(cost.host_us, cost.mixed.constant_us);
  EXPECT_GT(simulate(three, simulated, cost).mixed->steps, whole_chunks);
}

TEST_F(SimulationTest, ARequestWaitsForItsArrivalAndNotForAnother) {
  const std::vector<Request> two = {
      {.arrival_s = 0, .asked = {.prompt = {1, 2}, .max_tokens = 2}},
      {.arrival_s = 100, .asked = {.prompt = {3, 4}, .max_tokens = 1}},
  };
  const TrafficRecord record = simulate(two, options(), kASecond);
  EXPECT_DOUBLE_EQ(record.requests[0].deliveries.back().at_s, 2);
  EXPECT_DOUBLE_EQ(record.requests[1].deliveries.back().at_s, 101);
  EXPECT_DOUBLE_EQ(figures(record).first_token.max, 1000);
}

// Every step takes a second, and the next is launched a sixteenth of a second before it ends.
TEST_F(SimulationTest, ARequestThatComesWhileAStepRunsTakesPartInTheNext) {
  std::vector<Request> two = {{.arrival_s = 0, .asked = {.prompt = {1, 2}, .max_tokens = 9}},
                              {.arrival_s = 3.9, .asked = {.prompt = {3, 4}, .max_tokens = 1}}};
  EXPECT_DOUBLE_EQ(simulate(two, options(), kASecond).requests[1].deliveries.back().at_s, 5);
  two[1].arrival_s = 3.95;
  EXPECT_DOUBLE_EQ(simulate(two, options(), kASecond).requests[1].deliveries.back().at_s, 6);
}

}  // namespace
}  // namespace encore::traffic
