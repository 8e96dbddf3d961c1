// Tests that a model that sleeps between steps computes the same as one that does not, from the
// same recordings.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "base/source_dir.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"
#include "diagnose/probe.h"
#include "engine/testing/tiny_model.h"
#include "loader/memory_plan.h"

namespace encore::engine {
namespace {

using runtime::Graphs;
using testing::Tiny;

constexpr int kSequences = 32;

LoadOptions sleepy_options(Graphs graphs = Graphs::kAuto) {
  LoadOptions options;
  options.limits = {
      .max_num_tokens = 256, .max_batch_size = kSequences, .max_q = 1, .max_seq_len = 128};
  options.graphs = graphs;
  options.sequences = runtime::Ladder({8, kSequences});
  options.tokens = runtime::Ladder({256});
  options.kv_tokens = kSequences * 128;
  options.page_size = 16;
  return options;
}

// Counts the calls of each kind that devices receive while this object lives.
class Calls {
 public:
  [[nodiscard]] int of(const std::string& call) const { return count(all_, call); }
  // Returns the number of calls by this thread. Other ranks have threads of their own.
  [[nodiscard]] int of_this_thread(const std::string& call) const { return count(own_, call); }
  // Returns the number of allocations of device memory and pinned memory, and of mappings.
  [[nodiscard]] int memory() const { return of("allocate") + of("reserve") + of("map"); }

 private:
  using Counts = std::map<std::string, int, std::less<>>;

  int count(const Counts& counts, const std::string& call) const {
    const std::lock_guard lock(mutex_);
    const auto found = counts.find(call);
    return found == counts.end() ? 0 : found->second;
  }

  const std::thread::id thread_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  Counts all_;
  Counts own_;
  fault::Injection injection_{[this](std::string_view call) {
    const std::lock_guard lock(mutex_);
    ++all_[std::string(call)];
    if (std::this_thread::get_id() == thread_) ++own_[std::string(call)];
  }};
};

// Fails the n-th device call that it sees, counted from one.
class FailingCall {
 public:
  explicit FailingCall(int n) : left_(n) {}
  [[nodiscard]] bool has_failed() const { return left_ <= 0; }

 private:
  std::atomic<int> left_;
  fault::Injection injection_{[this](std::string_view call) {
    if (--left_ == 0) fail(ErrorKind::kMemory, "injected at {}", call);
  }};
};

// Runs 32 sequences of different lengths that decode on, and keeps all that they give.
class Decode {
 public:
  explicit Decode(LoadedModel& model, int64_t max_tokens = 32)
      : model_(model), engine_(model, {.overlap = false}) {
    std::mt19937 random(11);
    const auto vocab = static_cast<uint32_t>(model.config().vocab_size);
    for (int i = 0; i < kSequences; ++i) {
      std::vector<int32_t> prompt(1 + random() % 60);
      for (int32_t& token : prompt)
        token = static_cast<int32_t>(random() % vocab);
      Request request{.prompt = std::move(prompt), .max_tokens = max_tokens};
      request.sampling.num_logprobs = 0;  // so that ranks gather all logits
      EXPECT_TRUE(std::holds_alternative<SequenceId>(engine_.add(std::move(request))));
    }
  }

  // Runs one step and keeps its logits, too, since the tokens of small random models depend little
  // on earlier tokens.
  bool step() {
    if (!engine_.step([&](const Generated& generated) { tokens_.push_back(generated.token); }))
      return false;
    const size_t rows = engine_.last_plan().rows.size();
    std::vector<uint32_t> logits(rows * static_cast<size_t>(model_.config().vocab_size));
    diagnose::read_output(model_.executor(), 1, logits.data(),
                          static_cast<int64_t>(logits.size() * 4));
    logits_.insert(logits_.end(), logits.begin(), logits.end());
    return true;
  }
  Decode& finish() {
    while (step()) {
    }
    return *this;
  }
  Engine& engine() { return engine_; }
  [[nodiscard]] const std::vector<int32_t>& tokens() const { return tokens_; }

  friend bool operator==(const Decode& a, const Decode& b) {
    return !a.tokens_.empty() && a.tokens_ == b.tokens_ && a.logits_ == b.logits_;
  }

 private:
  LoadedModel& model_;
  Engine engine_;
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> logits_;  // bits of the logits
};

class SleepTest : public testing::DeviceTest {};

TEST_P(SleepTest, TwentySleepsBetweenTheStepsOf32SequencesChangeNoToken) {
  for (const Graphs graphs : {Graphs::kFull, Graphs::kPiecewise, Graphs::kNone}) {
    LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama),
                      testing::with_feature(sleepy_options(graphs)));
    const int recordings =
        model.recording_stats().full.recordings + model.recording_stats().pieces.recordings;
    EXPECT_EQ(recordings > 0, graphs != Graphs::kNone);
    const loader::MemoryPlan plan = loader::memory_plan(model);
    Decode awake(model);
    awake.finish();
    for (const SleepDepth depth : {SleepDepth::kKv, SleepDepth::kKvAndWeights}) {
      const Calls calls;
      Decode sleeper(model);
      for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(sleeper.step());
        sleeper.engine().sleep(depth);
        sleeper.engine().wake();
      }
      EXPECT_TRUE(sleeper.finish() == awake);
      EXPECT_EQ(calls.of("begin_recording"), 0);
      EXPECT_GE(calls.of("map"), 20 * 4);  // 20 sleeps, each with K and V of two layers to map
      const runtime::RecordingStats& stats = model.executor().loaded().recordings.stats();
      EXPECT_EQ(stats.full.recordings + stats.pieces.recordings, recordings);
      EXPECT_EQ(loader::memory_plan(model).total(), plan.total());
      EXPECT_EQ(loader::memory_plan(model).kv, plan.kv);
    }
  }
}

TEST_P(SleepTest, KvInFp8ComesBackToo) {
  LoadOptions narrow = sleepy_options();
  narrow.kv_dtype = DType::kFP8;
  LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama), testing::with_feature(narrow));
  EXPECT_EQ(model.kv_dtype(), DType::kFP8);
  Decode awake(model);
  awake.finish();
  Decode sleeper(model);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(sleeper.step());
    sleeper.engine().sleep(SleepDepth::kKv);
    sleeper.engine().wake();
  }
  EXPECT_TRUE(sleeper.finish() == awake);
}

TEST_P(SleepTest, WeightsOfACheckpointComeBackFromTheFileAsLongAsItIsTheSame) {
  namespace fs = std::filesystem;
  const TempDir temporary;
  const fs::path dir = temporary.path() / "model";
  fs::copy(ENCORE_SOURCE_DIR "/models/stories", dir);
  LoadOptions wanted = sleepy_options();
  wanted.dtype = DType::kF32;
  LoadedModel model(*device_, model::find_model(dir.string()), wanted);
  Decode awake(model, 8);
  awake.finish();
  Decode sleeper(model, 8);
  Engine& engine = sleeper.engine();
  ASSERT_TRUE(sleeper.step());
  engine.sleep(SleepDepth::kKvAndWeights);
  engine.wake();
  ASSERT_TRUE(sleeper.step());
  engine.sleep(SleepDepth::kKvAndWeights);

  const fs::path file = dir / "model.safetensors";
  const auto loaded_at = fs::last_write_time(file);
  fs::last_write_time(file, loaded_at + std::chrono::seconds(1));
  const std::string message = message_of(ErrorKind::kModel, [&] { engine.wake(); });
  EXPECT_NE(message.find("changed on disk"), std::string::npos) << message;
  EXPECT_TRUE(model.asleep());
  EXPECT_EQ(model.executor().loaded().kv.mapped_bytes(), 0);
  fs::last_write_time(file, loaded_at);
  engine.wake();
  EXPECT_TRUE(sleeper.finish() == awake);
}

TEST_P(SleepTest, ASleepingModelRefusesStepsAndKeepsItsSequences) {
  LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama),
                    testing::with_feature(sleepy_options()));
  Decode awake(model);
  awake.finish();
  Decode sleeper(model);
  Engine& engine = sleeper.engine();
  for (int i = 0; i < 5; ++i)
    sleeper.step();
  engine.wake();  // already awake
  engine.sleep(SleepDepth::kKv);
  EXPECT_TRUE(model.asleep());
  EXPECT_GT(model.saved_bytes(), 0);
  EXPECT_LT(model.saved_bytes(), model.executor().loaded().kv.bytes_for({model.num_pages()}) / 2);
  EXPECT_EQ(model.executor().loaded().kv.mapped_bytes(), 0);
  const std::string message = message_of(ErrorKind::kUsage, [&] { sleeper.step(); });
  EXPECT_NE(message.find("wake it first"), std::string::npos) << message;
  const int64_t saved = model.saved_bytes();
  engine.sleep(SleepDepth::kKv);            // a second call does nothing
  engine.sleep(SleepDepth::kKvAndWeights);  // a deeper sleep
  engine.sleep(SleepDepth::kKv);
  EXPECT_EQ(model.saved_bytes(), saved);
  // A sequence that comes and goes while the model sleeps leaves no trace.
  engine.abort(std::get<SequenceId>(engine.add({.prompt = {1, 2, 3}, .max_tokens = 8})));
  engine.wake();
  EXPECT_FALSE(model.asleep());
  EXPECT_EQ(model.saved_bytes(), 0);
  EXPECT_TRUE(sleeper.finish() == awake);
}

TEST_P(SleepTest, WhateverFailsItSleepsOnAndCanBeWokenLater) {
  LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama),
                    testing::with_feature(sleepy_options()));
  Decode awake(model);
  awake.finish();
  Decode sleeper(model);
  for (int i = 0; i < 5; ++i)
    sleeper.step();
  sleeper.engine().sleep(SleepDepth::kKvAndWeights);
  int failures = 0;
  for (bool done = false; !done; ++failures) {
    const FailingCall failing(failures + 1);
    try {
      sleeper.engine().wake();
      done = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kMemory);
      EXPECT_NE(std::string(error.what()).find("stays asleep"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("injected"), std::string::npos) << error.what();
      EXPECT_TRUE(model.asleep());
      EXPECT_EQ(model.executor().loaded().kv.mapped_bytes(), 0);
    }
  }
  EXPECT_GT(failures, 10);
  EXPECT_TRUE(sleeper.finish() == awake);
}

TEST_P(SleepTest, WhateverFailsWhileItFallsAsleepItStaysAwake) {
  LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama),
                    testing::with_feature(sleepy_options()));
  Decode awake(model);
  awake.finish();
  Decode sleeper(model);
  for (int i = 0; i < 5; ++i)
    sleeper.step();
  int failures = 0;
  for (; !model.asleep(); ++failures) {
    const FailingCall failing(failures + 1);
    try {
      sleeper.engine().sleep(SleepDepth::kKvAndWeights);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("injected"), std::string::npos) << error.what();
      EXPECT_FALSE(model.asleep());
      EXPECT_EQ(loader::memory_plan(model).kv,
                model.executor().loaded().kv.bytes_for({model.num_pages()}));
    }
    ASSERT_TRUE(model.asleep() || failing.has_failed());
  }
  EXPECT_GT(failures, 3);
  sleeper.engine().wake();
  EXPECT_TRUE(sleeper.finish() == awake);
}

TEST_P(SleepTest, IsNotWokenWhileSomebodyElseHasTheMemory) {
  if (!device_->used_bytes()) GTEST_SKIP() << "the device's memory is the host's";
  LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama),
                    testing::with_feature(sleepy_options()));
  Decode awake(model);
  awake.finish();
  Decode sleeper(model);
  for (int i = 0; i < 5; ++i)
    sleeper.step();
  sleeper.engine().sleep(SleepDepth::kKvAndWeights);
  {
    std::vector<Memory> somebody_elses;
    for (int64_t bytes = device_->info().free_bytes; bytes >= (1 << 20);) {
      try {
        somebody_elses.push_back(device_->allocate(bytes));
      } catch (const Error&) {
        bytes /= 2;
      }
    }
    const std::string message = message_of(ErrorKind::kMemory, [&] { sleeper.engine().wake(); });
    EXPECT_NE(message.find("GB are needed"), std::string::npos) << message;
    EXPECT_TRUE(model.asleep());
  }
  sleeper.engine().wake();
  EXPECT_TRUE(sleeper.finish() == awake);
}

TEST_P(SleepTest, AThousandReplaysTakeNoMemory) {
  for (const Graphs graphs : {Graphs::kFull, Graphs::kPiecewise}) {
    LoadOptions wanted = sleepy_options(graphs);
    wanted.limits.max_seq_len = 1200;
    LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama), testing::with_feature(wanted));
    Engine engine(model);
    for (int i = 0; i < 2; ++i)
      (void)std::get<SequenceId>(engine.add({.prompt = {3, 4, 5}, .max_tokens = 1100}));
    for (int i = 0; i < 50; ++i)
      engine.step([](const Generated&) {});
    const auto used = device_->used_bytes();
    const Calls calls;
    int num_steps = 0;
    for (; calls.of_this_thread("replay") < 1000; ++num_steps)
      ASSERT_TRUE(engine.step([](const Generated&) {}));
    EXPECT_EQ(device_->used_bytes(), used);
    EXPECT_EQ(calls.memory(), 0);
    if (graphs == Graphs::kFull) {
      EXPECT_EQ(num_steps, 1000);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SleepTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine
