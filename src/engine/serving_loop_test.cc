#include "engine/serving_loop.h"

#include <array>
#include <atomic>
#include <future>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

LoadOptions load_options() {
  LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.kv_tokens = 512;
  return options;
}

// Holds everything that the sink of one request has seen. The sink writes it on the loop's thread.
// The test reads it after it has waited for the ending. Test and sink share it, as either may be
// the last to need it.
class Heard {
 public:
  [[nodiscard]] Sink sink() const {
    return [state = state_](const Update& update) {
      EXPECT_FALSE(state->ended) << "an update after the ending";
      state->tokens.insert(state->tokens.end(), update.tokens.begin(), update.tokens.end());
      state->num_tokens = state->tokens.size();
      state->num_tokens.notify_all();
      if (!update.ending) return;
      state->ending = *update.ending;
      state->ended = true;
      state->ended.notify_all();
    };
  }
  void wait_for_token() const { state_->num_tokens.wait(0); }
  const Ending& ending() const {
    state_->ended.wait(false);
    return state_->ending;
  }
  const std::vector<int32_t>& tokens() const {
    state_->ended.wait(false);
    return state_->tokens;
  }
  [[nodiscard]] bool has_ended() const { return state_->ended; }

 private:
  struct State {
    std::vector<int32_t> tokens;
    Ending ending;
    std::atomic<size_t> num_tokens = 0;
    std::atomic<bool> ended = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class ServingLoopTest : public ::testing::Test {
 protected:
  void start() {
    make();
    run();
  }
  // Makes a loop that does nothing before run(). Requests that are submitted until then lie in its
  // inbox.
  void make(int64_t max_queue = 1000) {
    loop_.emplace(model_, ServingOptions{.max_queue = max_queue});
  }
  void run() {
    thread_ = std::thread([this] {
      try {
        loop_->run();
      } catch (const std::exception& error) {
        failure_ = error.what();
      }
    });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    loop_->stop();
    thread_.join();
  }
  std::variant<std::vector<RequestId>, Refusal> submit(Request request, Sink sink) {
    std::vector<Submission> one;
    one.push_back({std::move(request), std::move(sink)});
    return loop_->submit(std::move(one));
  }
  RequestId submitted(Request request, Sink sink) {
    return std::get<std::vector<RequestId>>(submit(std::move(request), std::move(sink))).at(0);
  }
  RequestId submitted(Request request, const Heard& heard) {
    return submitted(std::move(request), heard.sink());
  }
  // Returns a sink that calls `act` on the loop's thread at the request's first update. The loop
  // does nothing meanwhile.
  static Sink at_first_update(const Heard& heard, std::function<void()> act) {
    return
        [sink = heard.sink(), act = std::move(act), is_first = true](const Update& update) mutable {
          sink(update);
          if (std::exchange(is_first, false)) act();
        };
  }
  // Makes the model fall asleep at the request's first token, before the next one is generated.
  RequestId sleep_in(Request request, SleepDepth depth, Heard& heard) {
    std::promise<std::optional<Refusal>> slept;
    const RequestId id =
        submitted(std::move(request), at_first_update(heard, [&, depth] {
                    loop_->sleep(depth, [&](const auto& failure) { slept.set_value(failure); });
                  }));
    EXPECT_FALSE(slept.get_future().get());
    return id;
  }
  // Returns the reason why the loop could not sleep, or nothing if it slept.
  std::optional<Refusal> sleep(SleepDepth depth) {
    return told([&](Done done) { loop_->sleep(depth, std::move(done)); });
  }
  std::optional<Refusal> wake() {
    return told([&](Done done) { loop_->wake(std::move(done)); });
  }
  static std::optional<Refusal> told(const std::function<void(Done done)>& ask) {
    std::promise<std::optional<Refusal>> promise;
    ask([&](const std::optional<Refusal>& failure) { promise.set_value(failure); });
    return promise.get_future().get();
  }
  std::vector<int32_t> alone(const Request& request) {
    Engine engine(model_);
    std::vector<int32_t> tokens;
    (void)engine.add(request);
    while (engine.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
    }
    return tokens;
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  LoadedModel model_{*device_, testing::tiny_model(testing::Tiny::kLlama),
                     testing::with_feature(load_options())};
  std::optional<ServingLoop> loop_;
  std::thread thread_;
  std::string failure_;  // message that run() threw
};

TEST_F(ServingLoopTest, TheUpdatesOfAStepHaveOneTime) {
  start();
  std::array<std::vector<std::chrono::steady_clock::time_point>, 2> times;
  std::promise<void> ended;
  std::vector<Submission> both;
  for (size_t i = 0; i < times.size(); ++i) {
    both.push_back({{.prompt = {1, 2}, .max_tokens = 5}, [&, i](const Update& update) {
                      times.at(i).push_back(update.at);
                      ASSERT_TRUE(update.admitted);
                      EXPECT_GT(update.admitted->time_since_epoch().count(), 0);
                      EXPECT_LE(*update.admitted, update.at);
                      if (i == 1 && update.ending) ended.set_value();
                    }});
  }
  (void)loop_->submit(std::move(both));
  ended.get_future().wait();
  EXPECT_EQ(times[0].size(), 5U);
  EXPECT_EQ(times[0], times[1]);
  EXPECT_GT(times[0].front().time_since_epoch().count(), 0);
  EXPECT_TRUE(std::ranges::is_sorted(times[0]));
}

TEST_F(ServingLoopTest, ARequestGetsTheSameTokensAsFromAnEngineOfItsOwn) {
  const auto expected = alone({.prompt = {3, 4, 5}, .max_tokens = 12});
  start();
  Heard a;
  Heard b;
  submitted({.prompt = {3, 4, 5}, .max_tokens = 12}, a);
  a.wait_for_token();
  submitted({.prompt = {3, 4, 5}, .max_tokens = 12}, b);
  EXPECT_EQ(a.tokens(), expected);
  EXPECT_EQ(b.tokens(), expected);
  EXPECT_EQ(a.ending().reason, EndReason::kLength);
}

TEST_F(ServingLoopTest, TakesRequestsAfterItHasSlept) {
  start();
  for (int i = 0; i < 3; ++i) {
    Heard heard;
    submitted({.prompt = {7}, .max_tokens = 2}, heard);
    EXPECT_EQ(heard.tokens().size(), 2U);
  }
}

TEST_F(ServingLoopTest, AnAbortOfOneThatHasEndedChangesNothing) {
  start();
  Heard heard;
  const RequestId id = submitted({.prompt = {7}, .max_tokens = 2}, heard);
  EXPECT_EQ(heard.ending().reason, EndReason::kLength);
  loop_->abort(id);
  Heard next;
  submitted({.prompt = {7}, .max_tokens = 3}, next);
  EXPECT_EQ(next.ending().reason, EndReason::kLength);
  EXPECT_EQ(next.tokens().size(), 3U);
}

TEST_F(ServingLoopTest, AStopTokenEndsWithStop) {
  const int32_t stop = alone({.prompt = {5, 6}, .max_tokens = 20})[3];
  start();
  Heard heard;
  submitted({.prompt = {5, 6}, .max_tokens = 20, .stop_tokens = {stop}}, heard);
  EXPECT_EQ(heard.ending().reason, EndReason::kStop);
  EXPECT_EQ(heard.tokens().back(), stop);
}

TEST_F(ServingLoopTest, RefusesWhatIsInvalidWithoutAnyOfItsGroupRunning) {
  start();
  Heard good;
  std::vector<Submission> group;
  group.push_back({{.prompt = {1}, .max_tokens = 2}, good.sink()});
  group.push_back({{.prompt = {}}, [](const Update&) { FAIL(); }});
  const auto result = loop_->submit(std::move(group));
  EXPECT_EQ(std::get<Refusal>(result).kind, RefusalKind::kInvalid);
  EXPECT_NE(std::get<Refusal>(result).why.find("empty"), std::string::npos);
  Heard after;
  submitted({.prompt = {1}, .max_tokens = 2}, after);
  EXPECT_EQ(after.tokens().size(), 2U);
  EXPECT_FALSE(good.has_ended());
}

TEST_F(ServingLoopTest, RefusesMoreThanTheQueueHoldsAndTakesAgainOnceSomebodyEnded) {
  make(0);
  Heard heard[4];
  std::vector<RequestId> ids;
  for (Heard& one : heard)
    ids.push_back(submitted({.prompt = {1}, .max_tokens = 120}, one));
  Heard fifth;
  const auto refused = submit({.prompt = {1}, .max_tokens = 1}, fifth.sink());
  EXPECT_EQ(std::get<Refusal>(refused).kind, RefusalKind::kQueueFull);
  loop_->abort(ids[2]);
  run();
  EXPECT_EQ(heard[2].ending().reason, EndReason::kAborted);
  submitted({.prompt = {1}, .max_tokens = 1}, fifth);
  EXPECT_EQ(fifth.tokens().size(), 1U);
  EXPECT_EQ(heard[0].tokens().size(), 120U);
}

TEST_F(ServingLoopTest, RefusesAGroupThatTheQueueHasRoomForOnlyInPart) {
  make(0);
  Heard heard[3];
  for (Heard& one : heard)
    submitted({.prompt = {1}, .max_tokens = 120}, one);
  Heard group[2];
  std::vector<Submission> both;
  for (Heard& one : group)
    both.push_back({{.prompt = {2}, .max_tokens = 1}, one.sink()});
  EXPECT_EQ(std::get<Refusal>(loop_->submit(std::move(both))).kind, RefusalKind::kQueueFull);
  submitted({.prompt = {2}, .max_tokens = 1}, group[0]);
  run();
  EXPECT_EQ(group[0].tokens().size(), 1U);
  EXPECT_FALSE(group[1].has_ended());
}

TEST_F(ServingLoopTest, DrainingEndsThoseThatLiveAndRefusesOthers) {
  start();
  Heard heard;
  submitted({.prompt = {1}, .max_tokens = 100}, heard);
  heard.wait_for_token();
  loop_->drain();
  EXPECT_EQ(loop_->closed()->kind, RefusalKind::kDraining);
  Heard late;
  EXPECT_EQ(std::get<Refusal>(submit({.prompt = {1}, .max_tokens = 1}, late.sink())).kind,
            RefusalKind::kDraining);
  thread_.join();
  EXPECT_EQ(heard.tokens().size(), 100U);
}

TEST_F(ServingLoopTest, StoppingAbortsThoseThatLive) {
  make();
  Heard heard[8];
  submitted({.prompt = {1}, .max_tokens = 120}, at_first_update(heard[0], [&] { loop_->stop(); }));
  for (Heard& one : std::span(heard).subspan(1))
    submitted({.prompt = {1}, .max_tokens = 120}, one);
  run();
  thread_.join();
  for (const Heard& one : heard)
    EXPECT_EQ(one.ending().reason, EndReason::kAborted);
  Heard late;
  EXPECT_EQ(std::get<Refusal>(submit({.prompt = {1}, .max_tokens = 1}, late.sink())).kind,
            RefusalKind::kStopped);
}

TEST_F(ServingLoopTest, ADeviceErrorEndsEveryRequestWithItsMessage) {
  make();
  Heard heard[6];
  std::atomic<bool> fails = false;
  const fault::Injection injection([&](std::string_view) {
    if (fails) fail(ErrorKind::kDevice, "injected: the GPU fell off the bus");
  });
  submitted({.prompt = {1}, .max_tokens = 120}, at_first_update(heard[0], [&] { fails = true; }));
  for (Heard& one : std::span(heard).subspan(1))
    submitted({.prompt = {1}, .max_tokens = 120}, one);
  run();
  thread_.join();
  EXPECT_NE(failure_.find("fell off the bus"), std::string::npos);
  for (const Heard& one : heard) {
    EXPECT_EQ(one.ending().reason, EndReason::kError);
    EXPECT_NE(one.ending().message.find("fell off the bus"), std::string::npos);
  }
  Heard late;
  const auto refused = submit({.prompt = {1}, .max_tokens = 1}, late.sink());
  EXPECT_EQ(std::get<Refusal>(refused).kind, RefusalKind::kStopped);
  EXPECT_NE(std::get<Refusal>(refused).why.find("fell off the bus"), std::string::npos);
}

// The device fails while the messages lie unread in the inbox.
TEST_F(ServingLoopTest, ADeviceErrorAnswersThoseWhoseMessagesNobodyHasRead) {
  start();
  Heard first;
  Heard late;
  std::optional<std::optional<Refusal>> slept;
  std::atomic<bool> fails = false;
  const fault::Injection injection([&](std::string_view) {
    if (!fails.exchange(false)) return;
    submitted({.prompt = {2}, .max_tokens = 3}, late);
    loop_->sleep(SleepDepth::kKv, [&](const std::optional<Refusal>& failure) { slept = failure; });
    fail(ErrorKind::kDevice, "injected: the GPU fell off the bus");
  });
  submitted({.prompt = {1}, .max_tokens = 120}, at_first_update(first, [&] { fails = true; }));
  thread_.join();
  EXPECT_EQ(first.ending().reason, EndReason::kError);
  ASSERT_TRUE(late.has_ended());
  EXPECT_EQ(late.ending().reason, EndReason::kError);
  EXPECT_NE(late.ending().message.find("fell off the bus"), std::string::npos);
  ASSERT_TRUE(slept);
  ASSERT_TRUE(*slept);
  EXPECT_EQ((*slept)->kind, RefusalKind::kStopped);
  const GeneratorStatistics statistics = loop_->statistics();
  EXPECT_EQ(statistics.ended.at(static_cast<size_t>(EndReason::kError)), 2);
}

// Fails in the way that the device or the host may fail when the model is asked to sleep or to
// wake.
void fail_as(bool is_of_the_device) {
  if (is_of_the_device) fail(ErrorKind::kDevice, "injected: the GPU fell off the bus");
  throw std::bad_alloc();
}

TEST_F(ServingLoopTest, EverybodyWhoseMessageIsBehindASleepOrWakeThatFailsIsAnswered) {
  for (const bool fails_in_wake : {false, true}) {
    for (const bool is_of_the_device : {true, false}) {
      SCOPED_TRACE(fmt::format("in wake {}, of the device {}", fails_in_wake, is_of_the_device));
      // All messages come before run(), so the loop takes them at once.
      loop_.emplace(model_, ServingOptions{});
      Heard heard[3];
      std::vector<std::optional<Refusal>> answers;
      const auto done = [&](const std::optional<Refusal>& failure) { answers.push_back(failure); };
      submitted({.prompt = {1}, .max_tokens = 9}, heard[0]);
      loop_->sleep(SleepDepth::kKvAndWeights, done);
      submitted({.prompt = {2}, .max_tokens = 9}, heard[1]);
      loop_->wake(done);
      submitted({.prompt = {3}, .max_tokens = 9}, heard[2]);
      loop_->sleep(SleepDepth::kKv, done);
      {
        const fault::Injection injection([&](std::string_view call) {
          if (!fails_in_wake || call == "map") fail_as(is_of_the_device);
        });
        run();
        thread_.join();
      }
      for (const Heard& one : heard) {
        ASSERT_TRUE(one.has_ended());
        EXPECT_EQ(one.ending().reason, EndReason::kError);
        EXPECT_EQ(one.ending().message, failure_);
      }
      ASSERT_EQ(answers.size(), 3U);
      EXPECT_EQ(answers[0].has_value(), !fails_in_wake);
      EXPECT_EQ(answers[1]->kind, fails_in_wake ? RefusalKind::kFailed : RefusalKind::kStopped);
      EXPECT_EQ(answers[2]->kind, RefusalKind::kStopped);
      EXPECT_EQ(loop_->closed()->kind, RefusalKind::kStopped);
      if (model_.asleep()) model_.wake();
    }
  }
}

TEST_F(ServingLoopTest, APromptIsHashedOnceByWhoSubmitsItWhateverItsCopies) {
  loop_.emplace(model_, ServingOptions{.engine = {.prefix_cache = kv::PrefixCacheOptions{}}});
  const int64_t num_pages = 70 / model_.page_size();
  const auto num_hashed = [&] { return loop_->statistics().prefix_cache.hashed_pages; };
  const auto submit_copies = [&](std::span<Heard> heard, const Request& request) {
    std::vector<Submission> copies;
    for (const Heard& one : heard)
      copies.push_back({request, one.sink()});
    ASSERT_TRUE(std::holds_alternative<std::vector<RequestId>>(loop_->submit(std::move(copies))));
  };
  Heard heard[6];
  submit_copies(std::span(heard).first(4),
                {.prompt = std::vector<int32_t>(70, 3), .max_tokens = 2});
  EXPECT_EQ(num_hashed(), num_pages);  // the loop has not begun yet
  submit_copies(std::span(heard).subspan(4),
                {.prompt = std::vector<int32_t>(70, 4), .max_tokens = 2, .cache_salt = "salt"});
  EXPECT_EQ(num_hashed(), 2 * num_pages);
  run();
  for (const Heard& one : heard)
    EXPECT_EQ(one.tokens().size(), 2U);
  EXPECT_EQ(num_hashed(), 2 * num_pages);
  EXPECT_GT(loop_->statistics().prefix_cache.hit_tokens, 0);
}

TEST_F(ServingLoopTest, AbortsAtRandomMomentsLoseNoPageAndDisturbNobody) {
  const auto expected = alone({.prompt = {9, 8}, .max_tokens = 100});
  start();
  Heard innocent;
  submitted({.prompt = {9, 8}, .max_tokens = 100}, innocent);
  constexpr int kEach = 60;
  std::vector<std::thread> threads;
  for (int seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < kEach; ++i) {
        Heard heard;
        const auto length = static_cast<int32_t>(1 + random() % 40);
        const RequestId id =
            submitted({.prompt = std::vector<int32_t>(length, length), .max_tokens = 80}, heard);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        loop_->abort(id);
        loop_->abort(id);
        (void)heard.ending();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(innocent.tokens(), expected);
  loop_->drain();
  thread_.join();
  const GeneratorStatistics statistics = loop_->statistics();
  EXPECT_EQ(statistics.num_free_pages, statistics.num_pages);
  EXPECT_EQ(statistics.num_running + statistics.num_waiting, 0);
  EXPECT_EQ(statistics.ended[0] + statistics.ended[1] + statistics.ended[2], 3 * kEach + 1);
}

TEST_F(ServingLoopTest, ASinkMaySubmitAndAbort) {
  start();
  Heard second;
  Heard first;
  std::atomic<RequestId> id = 0;
  id = submitted({.prompt = {1}, .max_tokens = 100}, at_first_update(first, [&] {
                   submitted({.prompt = {2}, .max_tokens = 3}, second);
                   id.wait(0);
                   loop_->abort(id);
                 }));
  id.notify_all();
  EXPECT_EQ(first.ending().reason, EndReason::kAborted);
  EXPECT_EQ(second.tokens().size(), 3U);
}

TEST_F(ServingLoopTest, RequestsThatSleepGoOnAsIfNothingHadBeen) {
  const Request request{.prompt = {3, 4, 5}, .max_tokens = 120};
  const auto expected = alone(request);
  start();
  for (const SleepDepth depth : {SleepDepth::kKv, SleepDepth::kKvAndWeights}) {
    Heard heard;
    sleep_in(request, depth, heard);
    EXPECT_FALSE(sleep(depth));  // a second call does nothing
    EXPECT_FALSE(heard.has_ended());
    Heard late;
    EXPECT_EQ(std::get<Refusal>(submit(request, late.sink())).kind, RefusalKind::kAsleep);
    EXPECT_EQ(loop_->closed()->kind, RefusalKind::kAsleep);
    EXPECT_FALSE(wake());
    EXPECT_FALSE(loop_->closed());
    EXPECT_EQ(heard.tokens(), expected);
  }
}

TEST_F(ServingLoopTest, ARequestThatIsAbortedWhileTheModelSleepsFreesItsPages) {
  start();
  Heard heard;
  const RequestId id =
      sleep_in({.prompt = {1}, .max_tokens = 120}, SleepDepth::kKvAndWeights, heard);
  loop_->abort(id);
  EXPECT_EQ(heard.ending().reason, EndReason::kAborted);
  EXPECT_EQ(loop_->statistics().num_free_pages, loop_->statistics().num_pages);
  EXPECT_FALSE(wake());
  Heard after;
  submitted({.prompt = {1}, .max_tokens = 2}, after);
  EXPECT_EQ(after.tokens().size(), 2U);
}

TEST_F(ServingLoopTest, AModelThatCannotWakeSleepsOnAndCanBeWokenLater) {
  const Request request{.prompt = {7, 9}, .max_tokens = 120};
  const auto expected = alone(request);
  start();
  Heard heard;
  sleep_in(request, SleepDepth::kKvAndWeights, heard);
  {
    const fault::Injection injection([](std::string_view call) {
      if (call == "map") fail(ErrorKind::kMemory, "injected: somebody else has it");
    });
    const auto failure = wake();
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->kind, RefusalKind::kFailed);
    EXPECT_NE(failure->why.find("somebody else has it"), std::string::npos) << failure->why;
  }
  EXPECT_EQ(loop_->closed()->kind, RefusalKind::kAsleep);
  EXPECT_FALSE(wake());
  EXPECT_EQ(heard.tokens(), expected);
}

TEST_F(ServingLoopTest, ADrainOrStopWhileTheModelSleepsEndsThoseThatLive) {
  for (const bool drains : {true, false}) {
    start();
    Heard heard;
    sleep_in({.prompt = {1}, .max_tokens = 120}, SleepDepth::kKv, heard);
    drains ? loop_->drain() : loop_->stop();
    thread_.join();
    EXPECT_EQ(heard.ending().reason, EndReason::kAborted);
    EXPECT_EQ(wake()->kind, drains ? RefusalKind::kDraining : RefusalKind::kStopped);
    model_.wake();
  }
}

TEST_F(ServingLoopTest, ADeviceThatFailsWhileTheModelFallsAsleepEndsTheLoopAndSaysSo) {
  start();
  const fault::Injection injection(
      [&](std::string_view) { fail(ErrorKind::kDevice, "injected: the GPU fell off the bus"); });
  const auto failure = sleep(SleepDepth::kKvAndWeights);
  thread_.join();
  ASSERT_TRUE(failure.has_value());
  EXPECT_NE(failure->why.find("fell off the bus"), std::string::npos);
  EXPECT_NE(failure_.find("fell off the bus"), std::string::npos);
  EXPECT_EQ(loop_->closed()->kind, RefusalKind::kStopped);
}

}  // namespace
}  // namespace encore::engine
