#include "measure/served_traffic.h"

#include <map>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "base/testing/message_of.h"
#include "engine/testing/tiny_model.h"
#include "measure/alone.h"
#include "setup/logged_step.h"
#include "traffic/figures.h"
#include "traffic/mixed.h"

namespace encore::measure {
namespace {

loader::LoadOptions load_options() {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.kv_tokens = 512;
  options.scores_prompts = true;
  return options;
}

// Makes twelve requests. Three of them arrive together, the others 0.01 s apart.
std::vector<traffic::Request> some_requests() {
  std::vector<traffic::Request> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(
        {.arrival_s = i < 3 ? 0 : (i - 2) * 0.01,
         .asked = {.prompt = std::vector<int32_t>(static_cast<size_t>(5 + 3 * i), i + 1),
                   .max_tokens = 3 + i}});
  }
  return requests;
}

class ServedTrafficTest : public ::testing::Test {
 protected:
  traffic::TrafficRecord replay(const std::vector<traffic::Request>& requests,
                                const engine::ServingOptions& options = {},
                                const ServedTrafficOptions& traffic_options = {}) {
    engine::ServingLoop loop(model_, options);
    return serve_on(loop, requests, traffic_options);
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  loader::LoadedModel model_{*device_, engine::testing::tiny_model(engine::testing::Tiny::kLlama),
                             load_options()};
};

TEST_F(ServedTrafficTest, GivesEveryRequestExactlyItsTokens) {
  const auto requests = some_requests();
  StepTotals totals;
  const auto add = [&](const engine::MeasuredStep& step) { totals.add(setup::logged(step)); };
  const traffic::TrafficRecord record = replay(requests, {.engine = {.on_step = add}});
  ASSERT_EQ(record.requests.size(), requests.size());
  double last = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const traffic::RequestRecord& request = record.requests[i];
    EXPECT_TRUE(request.is_complete());
    EXPECT_EQ(request.num_delivered(), requests[i].asked.max_tokens);
    EXPECT_EQ(request.input_tokens, std::ssize(requests[i].asked.prompt));
    EXPECT_GE(request.submitted_s, request.arrival_s);
    double before = request.submitted_s;
    for (const traffic::Delivery& delivery : request.deliveries) {
      EXPECT_GE(delivery.at_s, before);
      before = delivery.at_s;
    }
    last = std::max(last, before);
  }
  EXPECT_EQ(record.requests[0].submitted_s, record.requests[2].submitted_s);
  EXPECT_EQ(record.wall_s, last);
  int64_t num_steps = 0;
  for (const engine::StepCount& count : record.steps)
    num_steps += count.steps;
  EXPECT_EQ(totals.decode().steps + totals.mixed().steps, num_steps);
  EXPECT_GT(totals.decode().seconds, 0);
  EXPECT_GT(totals.mixed().seconds, 0);
  EXPECT_LT(totals.decode().seconds + totals.mixed().seconds, record.wall_s);
  EXPECT_FALSE(record.prefix_cache.has_value());
}

TEST(DeviceIdle, LiesBetweenStepsThatFollowEachOtherByWhetherTheHostSentSomething) {
  Trace trace;
  const auto add = [&](TraceKind kind, int step, int64_t start_us, int64_t end_us) {
    trace.spans.push_back(
        {.kind = kind, .step = step, .start_ns = start_us * 1000, .end_ns = end_us * 1000});
  };
  trace.step_starts_ns = {0, 1, 2, 3, 4, 5, 6};
  add(TraceKind::kCopyCall, -1, 1, 2);  // inputs of the first step
  for (const int step : {0, 1, 2, 3, 5})
    add(TraceKind::kLaunchCall, step, 3 + step, 4 + step);
  add(TraceKind::kCopyCall, 1, 10, 11);    // inputs of the third step
  add(TraceKind::kLaunchCall, 2, 12, 13);  // pages for the fourth step
  add(TraceKind::kReplay, 0, 100, 200);
  add(TraceKind::kReplay, 1, 202, 300);
  add(TraceKind::kReplay, 2, 309, 400);
  add(TraceKind::kReplay, 3, 404, 500);
  add(TraceKind::kReplay, 5, 700, 800);  // step 4 was not replayed
  const traffic::DeviceIdle idle = device_idle(trace);
  EXPECT_EQ(idle.same_us, std::vector<double>{2});
  EXPECT_EQ(idle.changed_us, (std::vector<double>{9, 4}));
}

TEST_F(ServedTrafficTest, SeesHowLongTheDeviceIsIdleBetweenSteps) {
  const auto tracer = device_->create_tracer(TraceDetail::kReplays);
  model_.executor().hooks().before = [&](runtime::Executor&) { tracer->next_step(); };
  tracer->start();
  std::vector<traffic::Request> requests = some_requests();
  requests.resize(1);
  requests[0].asked.max_tokens = 9;
  (void)replay(requests);
  const traffic::DeviceIdle idle = device_idle(tracer->stop());
  model_.executor().hooks().before = nullptr;
  EXPECT_LE(idle.changed_us.size(), 1U);  // after the prompt's step, if it was replayed whole
  EXPECT_EQ(idle.same_us.size(), 7U);
}

TEST_F(ServedTrafficTest, FindsTheRequestsThatGetOtherTokensAlone) {
  const auto requests = some_requests();
  SampledAnswers answers(requests, 5, /*seed=*/1);
  ASSERT_EQ(answers.size(), 5);
  std::map<size_t, std::vector<int32_t>> all;
  const auto keep = [&](size_t request, std::span<const int32_t> tokens) {
    all[request].insert(all[request].end(), tokens.begin(), tokens.end());
  };
  traffic::TrafficRecord record = replay(requests, {}, {.on_tokens = keep});
  const auto compare = [&](const SampledAnswers& given) {
    return given.compare(model_, {}, record, [](int64_t) { return false; });
  };
  for (const auto& [request, tokens] : all)
    answers.add(request, tokens);
  EXPECT_EQ(compare(answers).num_compared, 5);
  EXPECT_TRUE(compare(answers).different.empty());

  SampledAnswers with_one_wrong(requests, std::ssize(requests), /*seed=*/1);
  for (auto& [request, tokens] : all) {
    if (request == 7) ++tokens.back();
    with_one_wrong.add(request, tokens);
  }
  EXPECT_EQ(compare(with_one_wrong).num_compared, std::ssize(requests));
  EXPECT_EQ(compare(with_one_wrong).different, std::vector<int64_t>{7});
  record.requests[7].ended.reset();  // this request's answer is now incomplete
  EXPECT_EQ(compare(with_one_wrong).num_compared, std::ssize(requests) - 1);
}

TEST_F(ServedTrafficTest, SaysWhatThePrefixCacheFound) {
  std::vector<traffic::Request> requests(2);
  for (traffic::Request& request : requests) {
    request.asked.prompt = std::vector<int32_t>(100, 7);
    request.asked.max_tokens = 1;
  }
  engine::ServingOptions options;
  options.engine.prefix_cache.emplace();
  const traffic::TrafficRecord record = replay(requests, options);
  ASSERT_TRUE(record.prefix_cache.has_value());
  EXPECT_EQ(record.prefix_cache->query_tokens, 200);
  EXPECT_EQ(record.prefix_cache->hit_tokens, 96);
}

TEST_F(ServedTrafficTest, AbortsRequestsWhoseClientsLeave) {
  auto requests = some_requests();
  requests[2].asked.max_tokens = 100;
  requests[2].leaves_after_s = 0;  // the client most likely leaves before the first token
  requests[11].leaves_after_s = 3600;
  const traffic::TrafficRecord record = replay(requests);
  EXPECT_TRUE(record.requests[2].has_left);
  EXPECT_EQ(record.requests[2].ended, engine::EndReason::kAborted);
  EXPECT_LT(record.requests[2].num_delivered(), 100);
  EXPECT_FALSE(record.requests[11].has_left);
  EXPECT_TRUE(record.requests[11].is_complete());
  EXPECT_EQ(traffic::figures(record).num_failed(), 0);
}

TEST_F(ServedTrafficTest, AnswersMixedRequestsAsItDoesAlone) {
  const std::vector<traffic::Request> requests =
      traffic::mixed_requests({.seconds = 1,
                               .requests_per_s = 100,
                               .max_input_tokens = 90,
                               .max_output_tokens = 30,
                               .vocab_size = model_.config().vocab_size,
                               .grammar = half_of_vocabulary(model_.config().vocab_size, 1)});
  engine::ServingOptions options{.max_queue = std::ssize(requests)};
  options.engine.prefix_cache.emplace();
  SampledAnswers answers(requests, std::ssize(requests), /*seed=*/1);
  int64_t device_bytes = 0;
  const traffic::TrafficRecord record =
      replay(requests, options,
             {.device_bytes = [&] { return ++device_bytes; },
              .on_tokens = [&](size_t request,
                               std::span<const int32_t> tokens) { answers.add(request, tokens); }});
  const traffic::Figures figures = traffic::figures(record);
  EXPECT_EQ(figures.num_failed(), 0);
  EXPECT_GT(figures.ended.at(static_cast<size_t>(engine::EndReason::kStop)), 0);
  EXPECT_EQ(record.memory.back().device_bytes, device_bytes);
  EXPECT_GT(record.memory.back().host_bytes, 1 << 20);
  const auto alone = answers.compare(model_, options, record, [](int64_t) { return false; });
  EXPECT_EQ(alone.num_compared, answers.size());
  EXPECT_TRUE(alone.different.empty());
}

TEST_F(ServedTrafficTest, EndsWhenItIsToldTo) {
  auto requests = some_requests();
  requests.back().arrival_s = 3600;
  const traffic::TrafficRecord record = replay(
      requests, {}, {.on_progress = [](int64_t num_ended, double) { return num_ended == 11; }});
  EXPECT_FALSE(record.requests.back().is_complete());
  EXPECT_TRUE(record.requests.front().is_complete());
  EXPECT_EQ(traffic::figures(record).num_complete, 11);
}

TEST_F(ServedTrafficTest, IsAnErrorWhereARequestIsRefused) {
  auto requests = some_requests();
  requests[5].asked.max_tokens = 1000;
  const std::string message = message_of(ErrorKind::kUsage, [&] { (void)replay(requests); });
  EXPECT_NE(message.find("a request was refused: 20 prompt tokens and 1000"), std::string::npos)
      << message;
}

TEST_F(ServedTrafficTest, EndsWithTheErrorOfADeviceThatFails) {
  auto requests = some_requests();
  requests.back().arrival_s = 3600;
  int calls = 0;
  const fault::Injection injection([&](std::string_view) {
    if (++calls == 10) fail(ErrorKind::kDevice, "injected");
  });
  const std::string message = message_of(ErrorKind::kDevice, [&] { (void)replay(requests); });
  EXPECT_NE(message.find("injected"), std::string::npos) << message;
}

}  // namespace
}  // namespace encore::measure
