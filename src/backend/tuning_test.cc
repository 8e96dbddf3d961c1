#include "backend/tuning.h"

#include <atomic>
#include <deque>
#include <thread>

#include <gtest/gtest.h>

#include "backend/cpu/stream.h"
#include "backend/device.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"

namespace encore {
namespace {

namespace fs = std::filesystem;

// A fake timer that notes its calls. A launch takes the time that its configuration says.
struct FakeTimer final : LaunchTimer {
  std::vector<KernelArgs> operands(const KernelArgs& args, const Workspace&) override {
    if (!has_memory) fail(ErrorKind::kMemory, "none left");
    ++num_operands;
    return {args, args};
  }
  double time(std::span<const BoundLaunch> launches) override {
    EXPECT_EQ(launches.size(), 2U);
    ++num_samples;
    launches[0](stream, {});  // sets `latest`
    return latest;
  }
  void release() override { ++num_releases; }

  cpu::CpuStream stream{std::nullopt};
  bool has_memory = true;
  double latest = 0;
  int num_operands = 0;
  int num_samples = 0;
  int num_releases = 0;
};

class TunerTest : public testing::Test {
 protected:
  TunerTest() {
    args_.inputs = {{"x", TensorView(nullptr, DType::kF32, {4, 8})}};
    args_.outputs = args_.inputs;
    restart({Tune::kOn, directory_});
  }

  // Makes a new tuner, which remembers no answers, as a new process would.
  void restart(TuningOptions options) {
    auto timer = std::make_unique<FakeTimer>();
    timer_ = timer.get();
    tuner_ = std::make_unique<Tuner>(TuningKey{{"device", "fake"}}, std::move(timer));
    tuner_->configure(std::move(options));
  }
  // Chooses among configurations. The text of a configuration is its time in microseconds; "bad"
  // cannot be bound, and "refused" cannot be launched.
  std::optional<std::string> choose(const std::string& launch,
                                    const std::vector<std::string>& configs) {
    return tuner_->choose({launch,
                           args_,
                           {},
                           [&](int most) {
                             const size_t count = std::min<size_t>(configs.size(), most);
                             return std::vector<std::string>(configs.begin(),
                                                             configs.begin() + count);
                           },
                           [&](const std::string& config, const KernelArgs&) -> BoundLaunch {
                             if (config == "bad") return nullptr;
                             return [this, config](Stream&, const StepLengths&) {
                               if (config == "refused") fail(ErrorKind::kDevice, "refused");
                               timer_->latest = std::stod(config);
                             };
                           },
                           code_,
                           beside_});
  }
  std::optional<std::string> tune(const std::string& launch,
                                  const std::vector<std::string>& configs) {
    const Tuner::Phase phase(*tuner_);
    return choose(launch, configs);
  }

  TempDir dir_;
  fs::path directory_ = dir_.path() / "tuning";
  KernelArgs args_;
  std::function<std::string(const std::string&)> code_;
  std::function<double(const std::string&)> beside_;
  FakeTimer* timer_ = nullptr;
  std::unique_ptr<Tuner> tuner_;
};

constexpr auto kNonePreferred = [](int) { return false; };

TEST(FindFastest, TakesTheSmallestMedianOfNoisySamples) {
  // The second candidate is faster except for outliers, the third is faster only once.
  const std::vector<std::vector<double>> samples = {
      {10, 10, 10, 10, 10, 10, 10}, {9, 9, 30, 9, 9, 30, 9}, {8, 11, 11, 11, 11, 11, 11}};
  std::vector<size_t> next(3);
  const Fastest fastest = find_fastest(
      3, [&](int i) { return samples[i][next[i]++]; }, kNonePreferred);
  EXPECT_EQ(fastest.index, 1);
  EXPECT_EQ(fastest.median, 9);
  EXPECT_EQ(fastest.median_of_first, 10);
}

TEST(FindFastest, SamplesLosersNoFurther) {
  std::vector<int> count(4);
  const double times[] = {10.1, 14, 10, 10.6};
  const Fastest fastest = find_fastest(
      4,
      [&](int i) {
        ++count[i];
        return times[i];
      },
      kNonePreferred);
  EXPECT_EQ(count[1], 1);         // given up after a slow sample
  EXPECT_LT(count[3], count[2]);  // given up after a slow median
  EXPECT_EQ(count[0], count[2]);  // sampled until the end
  EXPECT_EQ(fastest.index, 0);    // equally fast, so the first wins
}

TEST(FindFastest, StopsWhenOneIsLeft) {
  int count = 0;
  EXPECT_EQ(find_fastest(
                2, [&](int i) { return ++count, i == 0 ? 20.0 : 10.0; }, kNonePreferred)
                .index,
            1);
  EXPECT_EQ(count, 2);
}

TEST(FindFastest, OfEquallyFastThingsAPreferredOneWins) {
  const double times[] = {10.1, 10, 10.15, 10.4};
  const auto index = [&](int preferred) {
    return find_fastest(
               4, [&](int i) { return times[i]; }, [=](int i) { return i == preferred; })
        .index;
  };
  EXPECT_EQ(index(2), 2);
  EXPECT_EQ(index(3), 0);  // index 3 is not as fast
  EXPECT_EQ(index(-1), 0);
}

TEST_F(TunerTest, OfEquallyFastConfigurationsOneWhoseCodeIsInUseWins) {
  code_ = [](const std::string& config) { return config.substr(config.find('.')); };
  EXPECT_EQ(tune("a", {"10.7", "20.8"}), "10.7");
  EXPECT_EQ(tune("b", {"50.6", "50.7"}), "50.7");
  EXPECT_EQ(tune("c", {"30.6", "60.7"}), "30.6");
}

TEST_F(TunerTest, WhatAConfigurationCostsBesideItsTimeCounts) {
  beside_ = [](const std::string& config) { return config == "10" ? 3.0 : 0.0; };
  EXPECT_EQ(tune("a", {"10", "12"}), "12");
  EXPECT_EQ(tune("b", {"10", "14"}), "10");
}

TEST_F(TunerTest, MeasuresALaunchOnceAndRemembersItInTheProcessAndOnDisk) {
  {
    const Tuner::Phase phase(*tuner_);
    EXPECT_EQ(choose("a", {"20", "10", "30"}), "10");
    EXPECT_EQ(choose("a", {"20", "10", "30"}), "10");
    EXPECT_EQ(choose("b", {"5", "50"}), "5");
  }
  EXPECT_EQ(timer_->num_operands, 2);
  EXPECT_EQ(timer_->num_releases, 1);
  EXPECT_EQ(tuner_->stats().measured, 2);
  restart({Tune::kOn, directory_});
  EXPECT_EQ(choose("a", {"20", "10", "30"}), "10");
  EXPECT_EQ(tuner_->stats().cached, 1);
  EXPECT_EQ(tuner_->stats().measured, 0);
  EXPECT_EQ(timer_->num_samples, 0);
}

TEST_F(TunerTest, OutsideOfAPhaseTheFirstGuessIsTakenAndKept) {
  EXPECT_EQ(choose("a", {"20", "10"}), "20");
  EXPECT_EQ(tuner_->stats().untuned, 1);
  EXPECT_EQ(timer_->num_samples, 0);
  // A later call in a Phase, where the launch could be measured, must get the same answer, or the
  // modes of a step would run different configurations.
  EXPECT_EQ(tune("a", {"20", "10"}), "20");
  restart({Tune::kOn, directory_});
  EXPECT_EQ(tune("a", {"20", "10"}), "10");
}

TEST_F(TunerTest, WithoutPatienceTheFirstGuessIsTakenAndTheNextStartMeasures) {
  restart({.tune = Tune::kOn, .cache = directory_, .patience = 0});
  EXPECT_EQ(tune("a", {"20", "10"}), "20");
  EXPECT_EQ(timer_->num_samples, 0);
  EXPECT_EQ(tuner_->stats().postponed, 1);
  EXPECT_EQ(tuner_->stats().untuned, 1);
  EXPECT_EQ(to_text(tuner_->stats()), "1 left for the next start");
  restart({Tune::kOn, directory_});
  EXPECT_EQ(tune("a", {"20", "10"}), "10");
  EXPECT_EQ(tuner_->stats().postponed, 0);
}

TEST_F(TunerTest, PatienceIsOneForEachPhase) {
  restart({.tune = Tune::kOn, .cache = directory_, .patience = 1e-9});
  {
    const Tuner::Phase phase(*tuner_);
    EXPECT_EQ(choose("a", {"20", "10"}), "10");
    EXPECT_EQ(choose("b", {"20", "10"}), "20");
  }
  EXPECT_EQ(tune("c", {"20", "10"}), "10");
}

TEST_F(TunerTest, WhereAllIsMeasuredAnewItTakesAsLongAsItTakes) {
  restart({.tune = Tune::kFresh, .cache = directory_, .patience = 0});
  EXPECT_EQ(tune("a", {"20", "10"}), "10");
  EXPECT_EQ(tuner_->stats().postponed, 0);
}

TEST_F(TunerTest, OffNeitherMeasuresNorReads) {
  EXPECT_EQ(tune("a", {"20", "10"}), "10");
  restart({Tune::kOff, directory_});
  EXPECT_EQ(tune("a", {"20", "10"}), "20");
  EXPECT_EQ(timer_->num_samples, 0);
}

TEST_F(TunerTest, FreshMeasuresWhatIsRememberedAndReplacesIt) {
  EXPECT_EQ(tune("a", {"20", "10"}), "10");
  restart({Tune::kFresh, directory_});
  EXPECT_EQ(tune("a", {"20", "10", "5"}), "5");
  restart({Tune::kOn, directory_});
  EXPECT_EQ(choose("a", {"20", "10", "5"}), "5");
}

TEST_F(TunerTest, WithoutACacheEachStartMeasures) {
  restart({Tune::kOn, std::nullopt});
  EXPECT_EQ(tune("a", {"20", "10"}), "10");
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(TunerTest, ARememberedConfigurationThatNoLongerRunsIsChosenAnewWithALine) {
  EXPECT_EQ(tune("a", {"20", "10"}), "10");
  {
    TuningCache cache(directory_, tuner_->key());
    cache.add("a", {"bad", 1, 1});
    ASSERT_TRUE(cache.save());
  }
  restart({Tune::kOn, directory_});
  testing::internal::CaptureStderr();
  EXPECT_EQ(tune("a", {"20", "10"}), "10");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("does not run here"), std::string::npos);
  EXPECT_EQ(TuningCache(directory_, tuner_->key()).find("a")->config, "10");
}

TEST_F(TunerTest, CandidatesThatDoNotRunAreLeftOut) {
  EXPECT_EQ(tune("a", {"bad", "30", "refused", "20"}), "20");
  EXPECT_EQ(tune("none", {}), std::nullopt);
  EXPECT_EQ(tune("one", {"7"}), "7");
}

TEST_F(TunerTest, WithoutMemoryToMeasureTheFirstGuessIsTakenWithOneLine) {
  timer_->has_memory = false;
  testing::internal::CaptureStderr();
  {
    const Tuner::Phase phase(*tuner_);
    EXPECT_EQ(choose("a", {"20", "10"}), "20");
    EXPECT_EQ(choose("b", {"20", "10"}), "20");
  }
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
  EXPECT_EQ(tuner_->stats().untuned, 2);
  EXPECT_TRUE(TuningCache(directory_, tuner_->key()).choices().empty());
}

TEST(TuningText, NamesWhatALaunchDependsOn) {
  KernelArgs args;
  auto* const base = reinterpret_cast<std::byte*>(4096);
  args.inputs = {{"x", TensorView(base, DType::kBF16, {3, 64})},
                 {"weight", TensorView(base, DType::kF16, {5, 64})}};
  args.outputs = {{"y", TensorView(base + 8, DType::kF32, {3, 5})}};
  args.inputs["x"].row_stride = 128;
  EXPECT_EQ(tuning_text("linear.x", args), "linear.x bf16[3,64]/128, f16[5,64] -> f32[3,5]@8");
}

// Tunes a toy kernel on the CPU, which adds one, either row by row or to all rows at once.
class CpuTuning : public testing::Test {
 protected:
  CpuTuning() : memory_(device_->allocate(4096)) {
    device_->tuner().configure({Tune::kOn, std::nullopt});
    const TensorView view(memory_.data() + 16, DType::kF32, {4, 8});
    args_.inputs = {{"x", view}};
    args_.outputs = {{"y", view}};
  }
  std::optional<std::string> choose() {
    return device_->tuner().choose(
        {tuning_text("add_one", args_),
         args_,
         {256, 2},
         [](int) {
           return std::vector<std::string>{"rows", "all"};
         },
         [this](const std::string& config, const KernelArgs& args) -> BoundLaunch {
           seen_.push_back(args);
           return [=](Stream& stream, const StepLengths&) {
             cpu::enqueue(stream, config, [args] {
               for (int64_t i = 0; i < args.inputs["x"].shape.num_elements(); ++i)
                 args.outputs["y"].as<float>()[i] = args.inputs["x"].as<float>()[i] + 1;
             });
           };
         },
         nullptr});
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  Memory memory_;
  KernelArgs args_;
  std::deque<KernelArgs> seen_;
};

TEST_F(CpuTuning, MeasuresOnMemoryOfItsOwnAlignedAsTheLaunchs) {
  const Tuner::Phase phase(device_->tuner());
  EXPECT_TRUE(choose().has_value());
  EXPECT_EQ(device_->tuner().stats().measured, 1);
  ASSERT_GE(seen_.size(), 2U);
  for (const KernelArgs& args : seen_) {
    EXPECT_NE(args.inputs["x"].data, args_.inputs["x"].data);
    EXPECT_NE(args.outputs["y"].data, args.inputs["x"].data);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(args.inputs["x"].data) % 64,
              reinterpret_cast<uintptr_t>(args_.inputs["x"].data) % 64);
    EXPECT_NE(args.scratch, nullptr);
    EXPECT_NE(args.counters, nullptr);
  }
}

TEST_F(CpuTuning, MeasuringWhileRecordingIsAnErrorThatNamesTheOp) {
  const auto stream = device_->create_stream();
  const Tuner::Phase phase(device_->tuner());
  const std::string message = message_of(ErrorKind::kCompile, [&] {
    RecordingScope scope(*stream);
    stream->launch({.label = "late_op", .id = 0, .after = {}},
                   [&](Stream&, const StepLengths&) { (void)choose(); }, {});
  });
  EXPECT_NE(message.find("late_op"), std::string::npos) << message;
  // No answer was stored, so the launch can still be tuned.
  EXPECT_TRUE(choose().has_value());
  EXPECT_EQ(device_->tuner().stats().measured, 1);
}

// The ranks of a model run the configurations that rank 0's tuner chooses, even where others are
// faster on their own devices.
TEST_F(TunerTest, TakesTheAnswersOfTheTunerThatItFollows) {
  const std::shared_ptr<Tuner> first = std::move(tuner_);  // shared with the tuner that follows it
  restart({Tune::kOff, std::nullopt});
  std::atomic<bool> has_failed = false;
  tuner_->follow(first, [&] {
    if (has_failed) fail(ErrorKind::kDevice, "rank 0 failed");
  });
  std::optional<std::string> answer;
  {
    const std::jthread asking([&] { answer = choose("a", {"3", "2", "1"}); });
    const Tuner::Phase phase(*first);
    (void)first->choose({"a",
                         args_,
                         {},
                         [](int) { return std::vector<std::string>{"7"}; },
                         [](const std::string&, const KernelArgs&) -> BoundLaunch {
                           return [](Stream&, const StepLengths&) {};
                         }});
  }
  EXPECT_EQ(answer, "7");
  EXPECT_EQ(choose("a", {"3", "2", "1"}), "7");
  has_failed = true;
  EXPECT_EQ(message_of(ErrorKind::kDevice, [&] { (void)choose("b", {"1"}); }), "rank 0 failed");
}

}  // namespace
}  // namespace encore
