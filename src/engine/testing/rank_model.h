// Tests of several ranks share a small model on ranks of the CPU, and a way to run the test's own
// work inside the model's steps.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include <gtest/gtest.h>

#include "backend/cpu/stream.h"
#include "engine/testing/lora_model.h"

namespace encore::engine::lora {

inline std::unique_ptr<Device> ranks_of_cpu(
    int num_ranks, std::chrono::milliseconds timeout = std::chrono::minutes(10)) {
  return create_cpu_device({.num_threads = 2, .num_ranks = num_ranks, .rank_timeout = timeout});
}

// Makes the device call a test's function whenever it writes log probabilities: after it has
// gathered the logits, and before `advance`.
class BehindLogits {
 public:
  BehindLogits(Device& device, std::function<void()> work) {
    work_ = std::move(work);
    const auto rows = device.kernels().rows();
    usual_ = *std::ranges::find(rows, "log_probs", &Kernel::op);
    Kernel kernel = usual_;
    kernel.bind = [](Device& of, const KernelArgs& args) -> BoundLaunch {
      return [usual = usual_.bind(of, args)](Stream& stream, const StepLengths& lengths) {
        cpu::enqueue(stream, "work of a test", [] {
          if (is_armed) work_();
        });
        usual(stream, lengths);
      };
    };
    device.kernels().add_first(kernel);
  }
  ~BehindLogits() { is_armed = false; }
  BehindLogits(const BehindLogits&) = delete;
  BehindLogits& operator=(const BehindLogits&) = delete;

  // Is false while the model is loaded. The function is called only while it is true.
  static inline std::atomic<bool> is_armed = false;

 private:
  static inline std::function<void()> work_;
  static inline Kernel usual_;
};

class RankModelTest : public ::testing::Test {
 protected:
  RankModelTest() { write_model(dir_, kLlama, base_tensors(kLlama)); }
  [[nodiscard]] model::ModelSource source() const {
    return model::find_model(dir_.path().string());
  }
  [[nodiscard]] std::unique_ptr<LoadedModel> load(Device& device,
                                                  const LoadOptions& options) const {
    return std::make_unique<LoadedModel>(device, source(), options);
  }

  TempDir dir_;
  LoadOptions options_ = lora_options();
};

}  // namespace encore::engine::lora
