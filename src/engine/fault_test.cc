// Tests that any failure while a model is loaded and recorded gives one clear error or costs one
// recording. The device is then as before, and the next model loads and runs.
#include "backend/fault.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using runtime::RecordingErrors;

// A fault to inject. It is called at the device call that it is planted at.
using Fault = std::function<void(Device& device, Stream& bystander)>;

void run_out_of_memory(Device&, Stream&) {
  fail(ErrorKind::kMemory, "injected: the device has no more memory");
}
void fail_to_launch(Device&, Stream&) {
  fail(ErrorKind::kDevice, "injected: launch failure");
}
// Waits for another stream. That is illegal while the calling thread records, and harmless
// otherwise.
void wait_for_another_stream(Device&, Stream& bystander) {
  bystander.synchronize();
}
void allocate_on_another_thread(Device& device, Stream&) {
  std::thread([&device] {
    Memory memory = device.allocate(1 << 20);
    Memory pinned = device.allocate_host(1 << 12);
    const auto stream = device.create_stream();
    stream->fill(memory.data(), 7, memory.bytes());
    stream->synchronize();
  }).join();
}

LoadOptions load_options(RecordingErrors policy) {
  LoadOptions options;
  options.limits = {.max_num_tokens = 16, .max_batch_size = 2, .max_q = 1, .max_seq_len = 64};
  options.kv_tokens = 128;
  options.sequences = runtime::Ladder({1, 2});
  options.tokens = runtime::Ladder({16});
  options.recording_errors = policy;
  return options;
}

std::vector<int32_t> generate(LoadedModel& model) {
  Engine engine(model);
  std::vector<int32_t> tokens;
  for (const int32_t first : {3, 4})
    (void)engine.add({.prompt = {first, 5, 6}, .max_tokens = 4});
  while (engine.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
  }
  return tokens;
}

class FaultTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    bystander_ = device_->create_stream();
    calls_ = num_calls();  // counts again below: the first load has calls that a device makes once
    calls_ = num_calls();
    tokens_ = load_and_generate(RecordingErrors::kStop);
    used_ = device_->used_bytes();
    recordings_ = num_recordings(*load(RecordingErrors::kStop));
  }
  // Creates a new device. It is needed after a failure on a device of several ranks, as such a
  // device computes nothing after a rank has failed.
  void renew_device() {
    bystander_.reset();
    DeviceTest::SetUp();
    bystander_ = device_->create_stream();
  }
  static int num_recordings(const LoadedModel& model) {
    return model.recording_stats().full.recordings + model.recording_stats().pieces.recordings;
  }

  std::unique_ptr<LoadedModel> load(RecordingErrors policy) {
    // The model has every op. It is otherwise as small as possible, since it is loaded hundreds of
    // times.
    model::ModelSource source = testing::tiny_model(testing::Tiny::kLlama);
    source.config.layers.resize(1);
    source.config.intermediate_size = 64;
    source.config.vocab_size = 64;
    return std::make_unique<LoadedModel>(*device_, source,
                                         testing::with_feature(load_options(policy)));
  }
  std::vector<int32_t> load_and_generate(RecordingErrors policy) { return generate(*load(policy)); }
  int num_calls() {
    int calls = 0;
    const fault::Injection injection([&](std::string_view) { ++calls; });
    const auto model = load(RecordingErrors::kStop);
    return calls;  // counted before the model's destructor makes calls
  }

  // Loads the model with the fault at one call after the other. Returns how often loading went on,
  // and compares what the loaded model generates.
  int loads_that_went_on(const Fault& fault, RecordingErrors policy) {
    int went_on = 0;
    // Some hundred loads take a GPU a second, so on a GPU only every seventh call gets a fault.
    // Seven is a prime, so no period of the calls keeps one kind of call from being reached.
    const int stride = device_->kind() == DeviceKind::kCuda ? 7 : 1;
    for (int at = 1; at <= calls_; at += stride) {
      std::unique_ptr<LoadedModel> model;
      try {
        std::atomic<int> call = 0;
        const fault::Injection injection([&](std::string_view) {
          if (++call == at) fault(*device_, *bystander_);
        });
        model = load(policy);
      } catch (const Error& error) {
        EXPECT_GT(std::string(error.what()).size(), 10U);
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
        if (!device_->peers().empty()) renew_device();
      }
      if (model) {
        ++went_on;
        EXPECT_GE(num_recordings(*model), recordings_ - 1) << "after a fault at call " << at;
        EXPECT_EQ(generate(*model), tokens_) << "after a fault at call " << at;
      }
    }
    EXPECT_EQ(device_->used_bytes(), used_)
        << "memory leaked, or another process uses the device: this test wants it for itself";
    EXPECT_EQ(load_and_generate(policy), tokens_);
    return went_on;
  }

  std::unique_ptr<Stream> bystander_;
  int calls_ = 0;
  int recordings_ = 0;
  std::vector<int32_t> tokens_;
  std::optional<int64_t> used_;
};

TEST_P(FaultTest, AFailedCallStopsTheStartWithOneLineAndLeaksNothing) {
  for (const Fault& fault : {Fault(run_out_of_memory), Fault(fail_to_launch)}) {
    EXPECT_EQ(loads_that_went_on(fault, RecordingErrors::kStop), 0);
  }
}

TEST_P(FaultTest, ARecordingThatFailsMayBeLeftOutAndTheTokensStayTheSame) {
  for (const Fault& fault : {Fault(run_out_of_memory), Fault(fail_to_launch)}) {
    EXPECT_GT(loads_that_went_on(fault, RecordingErrors::kDrop), 0);
  }
}

TEST_P(FaultTest, AnIllegalWaitCostsTheRecordingItIsInAndNothingElse) {
  EXPECT_GT(loads_that_went_on(wait_for_another_stream, RecordingErrors::kDrop), 0);
}

TEST_P(FaultTest, OtherThreadsMayAllocateAndWaitAtAnyMoment) {
  EXPECT_EQ(loads_that_went_on(allocate_on_another_thread, RecordingErrors::kStop),
            device_->kind() == DeviceKind::kCuda ? (calls_ + 6) / 7 : calls_);
}

INSTANTIATE_TEST_SUITE_P(Devices, FaultTest, ::testing::Values("Cpu", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine
