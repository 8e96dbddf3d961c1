// Tests launches just before the end of the step in flight, on a device that runs beside the host.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "backend/advance.h"
#include "engine/serving_loop.h"
#include "engine/testing/async_device.h"
#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

LoadOptions eager_options() {
  LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.kv_tokens = 512;
  options.graphs = runtime::Graphs::kNone;  // so that the device reports each launch
  return options;
}

class JustInTimeTest : public ::testing::Test {
 protected:
  // The device calls it at the end of each step, on the device's own thread. Tests use it with
  // `may_end_` and `num_ended_`.
  std::function<void()> at_end_of_step_;
  std::atomic<bool> may_end_ = false;
  std::atomic<int> num_ended_ = 0;
  testing::AsyncDevice device_{[this](std::string_view label) {
    if (label == "advance" && at_end_of_step_) at_end_of_step_();
  }};
  // Loads a model that has measured none of its steps yet.
  [[nodiscard]] std::unique_ptr<LoadedModel> load() {
    return std::make_unique<LoadedModel>(device_, testing::tiny_model(testing::Tiny::kLlama),
                                         testing::with_feature(eager_options()));
  }
  std::unique_ptr<LoadedModel> model_ = load();
};

TEST_F(JustInTimeTest, TheDeviceRestsOnceTheStepInFlightHasEnded) {
  at_end_of_step_ = [this] { may_end_.wait(false); };
  Engine engine(*model_, {.overlap = true});
  EXPECT_TRUE(engine.device_rests());
  (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 40});
  EXPECT_TRUE(engine.step([](const Generated&) {}));
  EXPECT_FALSE(engine.device_rests());
  may_end_ = true;
  may_end_.notify_all();
  model_->executor().loaded().stream.synchronize();
  EXPECT_TRUE(engine.device_rests());
}

// The device holds the step in flight until memory of the model is given back, for 50 ms at most. A
// correct model gives none back before the step ends.
TEST_F(JustInTimeTest, AModelThatEndsKeepsItsMemoryForTheStepInFlight) {
  std::atomic<bool> ends = false;
  std::atomic<int> before = 0;
  std::atomic<int> num_released = 0;
  at_end_of_step_ = [&] {
    ends.wait(false);
    for (int i = 0; i < 50 && device_.num_released() == before; ++i)
      std::this_thread::sleep_for(milliseconds(1));
    num_released = device_.num_released() - before;
  };
  {
    Engine engine(*model_, {.overlap = true});
    (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 40});
    EXPECT_TRUE(engine.step([](const Generated&) {}));
  }
  before = device_.num_released().load();  // the engine's memory may be given back by now
  ends = true;
  ends.notify_all();
  model_.reset();
  EXPECT_EQ(num_released, 0);
}

class JustInTimeLoopTest : public JustInTimeTest {
 protected:
  void TearDown() override {
    if (thread_.joinable()) stop();
  }
  void start() {
    loop_.emplace(*model_, ServingOptions{.engine = {.overlap = true}});
    thread_ = std::thread([this] { loop_->run(); });
  }
  void stop() {
    loop_->stop();
    thread_.join();
    model_->executor().loaded().stream.synchronize();
  }
  void submit(Request request, Sink sink) {
    std::vector<Submission> one;
    one.push_back({std::move(request), std::move(sink)});
    EXPECT_TRUE(std::holds_alternative<std::vector<RequestId>>(loop_->submit(std::move(one))));
  }
  // Waits until the loop has received the requests that were submitted before.
  void wait_until_received() {
    std::promise<void> received;
    loop_->wake([&](const std::optional<Refusal>&) { received.set_value(); });
    received.get_future().wait();
  }
  // Submits a request. The future holds the time when its first token was delivered.
  std::future<Time> submit(Request request) {
    auto first = std::make_shared<std::promise<Time>>();
    std::future<Time> at = first->get_future();
    submit(std::move(request), [first, is_first = true](const Update& update) mutable {
      if (std::exchange(is_first, false)) first->set_value(update.at);
    });
    return at;
  }

  std::optional<ServingLoop> loop_;
  std::thread thread_;
};

TEST_F(JustInTimeLoopTest, NoticesAStepThatEndsEarly) {
  static constexpr milliseconds kStep(45);
  static constexpr int kLongSteps = 8;
  at_end_of_step_ = [this] {
    if (num_ended_++ < kLongSteps) std::this_thread::sleep_for(kStep);
  };
  bool is_noticed = false;
  // On a busy machine, the loop may look too late, or may have launched the next step by then, so
  // the test tries several times.
  for (int round = 0; round < 20 && !is_noticed; ++round) {
    num_ended_ = 0;
    start();
    std::vector<Time> tokens;
    std::promise<void> ended;
    submit({.prompt = {1}, .max_tokens = kLongSteps + 2}, [&](const Update& update) {
      tokens.push_back(update.at);
      if (update.ending) ended.set_value();
    });
    ended.get_future().wait();
    stop();
    is_noticed = tokens[kLongSteps] - tokens[kLongSteps - 1] < kStep / 2 &&
                 loop_->statistics().host_times.num_late_steps > 0;
    loop_.reset();
    model_ = load();
  }
  EXPECT_TRUE(is_noticed);
}

// The second request comes after the first one was received. If the loop launched a step for the
// first at once, the second could not be in that step.
TEST_F(JustInTimeLoopTest, RequestsThatComeWhileAStepRunsStartInTheSameStep) {
  static constexpr milliseconds kStep(40);
  at_end_of_step_ = [this] {
    std::this_thread::sleep_for(kStep);
    ++num_ended_;
    num_ended_.notify_all();
  };
  start();
  submit({.prompt = {1}, .max_tokens = 120}, [](const Update&) {});
  num_ended_.wait(0);
  bool start_together = false;
  // On a busy machine, the second request may come too late, so the test tries several times.
  for (int round = 0; round < 20 && !start_together; ++round) {
    const int before = num_ended_;
    num_ended_.wait(before);
    std::future<Time> one = submit({.prompt = {2, 3}, .max_tokens = 1});
    wait_until_received();
    std::future<Time> other = submit({.prompt = {4, 5, 6}, .max_tokens = 1});
    start_together = one.get() == other.get();
  }
  EXPECT_TRUE(start_together);
}

// Tests a burst whose only sequence is aborted. The test's device holds the second step of the
// burst until that sequence is gone.
class AbortedBurstTest : public JustInTimeTest {
 protected:
  AbortedBurstTest() {
    LoadOptions options = eager_options();
    options.graphs = runtime::Graphs::kAuto;
    options.bursts = true;
    model_ = std::make_unique<LoadedModel>(device_, testing::tiny_model(testing::Tiny::kLlama),
                                           testing::with_feature(options));
    model_->executor().loaded().stream.synchronize();
    at_end_of_step_ = [this] {
      if (++num_ended_ > 1) may_end_.wait(false);
    };
  }
  void let_steps_end() {
    may_end_ = true;
    may_end_.notify_all();
  }
  void expect_end_of_burst() {
    model_->executor().loaded().stream.synchronize();
    EXPECT_LE(num_ended_, runtime::Recordings::kStepsPerIteration);
  }
  const EngineOptions how_ = {.overlap = false, .burst_steps = 64};
  const Request request_ = {.prompt = {4}, .max_tokens = 90};
  int num_tokens_ = 0;
};

TEST_F(AbortedBurstTest, EndsOnceNobodyTakesPart) {
  Engine engine(*model_, how_);
  const SequenceId id = std::get<SequenceId>(engine.add(request_));
  const auto on_token = [&](const Generated&) { ++num_tokens_; };
  while (num_tokens_ == 0)
    EXPECT_TRUE(engine.step(on_token));
  engine.abort(id);
  let_steps_end();
  while (engine.step(on_token)) {
  }
  EXPECT_EQ(num_tokens_, 1);
  expect_end_of_burst();
}

// Tests a burst that the host interrupts. The test's device holds the steps behind the first until
// the host has lowered the mark at which the burst ends.
class InterruptedBurstTest : public AbortedBurstTest {
 protected:
  InterruptedBurstTest() {
    at_end_of_step_ = [this] {
      if (++num_ended_ == 1 || may_end_) return;
      for (int i = 0; i < 400 && !is_interrupted(); ++i)
        std::this_thread::sleep_for(milliseconds(5));
      may_end_ = true;
    };
  }
  [[nodiscard]] bool is_interrupted() const {
    runtime::Executor& executor = model_->executor();
    auto* const marks = executor.loaded().persistent.find("ring_marks").as<int32_t>();
    const int32_t run_until = std::atomic_ref(marks[advance_op::kRunUntil]).load();
    return static_cast<runtime::StepNumber>(run_until) == executor.output().ring().published();
  }
  // Takes the first token of a burst. The second step of the burst is then under way.
  SequenceId begin(Engine& engine) {
    const SequenceId id = std::get<SequenceId>(engine.add(request_));
    while (num_tokens_ == 0)
      EXPECT_TRUE(engine.step([&](const Generated&) { ++num_tokens_; }));
    return id;
  }
};

TEST_F(InterruptedBurstTest, EndsForANewcomer) {
  Engine engine(*model_, how_);
  const SequenceId old = begin(engine);
  const auto newcomer = std::get<SequenceId>(engine.add({.prompt = {5}, .max_tokens = 2}));
  bool has_begun = false;
  const auto on_token = [&](const Generated& generated) {
    has_begun |= generated.sequence == newcomer;
    num_tokens_ += generated.sequence == old && !has_begun ? 1 : 0;
  };
  while (!has_begun)
    ASSERT_TRUE(engine.step(on_token));
  const int64_t most_of_a_step = 1 + model_->limits().num_drafts;
  EXPECT_LE(num_tokens_, most_of_a_step * (runtime::Recordings::kStepsPerIteration + 1));
}

TEST_F(InterruptedBurstTest, EndsForASleep) {
  Engine engine(*model_, how_);
  begin(engine);
  engine.sleep(SleepDepth::kKv);
  EXPECT_LE(num_ended_, runtime::Recordings::kStepsPerIteration);
}

TEST_F(InterruptedBurstTest, EndsWithItsEngine) {
  {
    Engine engine(*model_, how_);
    begin(engine);
  }
  expect_end_of_burst();
}

// A server stops its loop in this way when its last requests have not ended in time.
TEST_F(AbortedBurstTest, EndsOnceTheLoopIsStopped) {
  ServingLoop loop(*model_, {.engine = how_});
  std::optional<Ending> ending;
  std::vector<Submission> one;
  one.push_back({request_, [&](const Update& update) {
                   num_tokens_ += static_cast<int>(update.tokens.size());
                   ending = update.ending;
                   ending ? let_steps_end() : loop.stop();
                 }});
  ASSERT_TRUE(std::holds_alternative<std::vector<RequestId>>(loop.submit(std::move(one))));
  loop.run();
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->reason, EndReason::kAborted);
  EXPECT_EQ(num_tokens_, 1);
  expect_end_of_burst();
}

}  // namespace
}  // namespace encore::engine
