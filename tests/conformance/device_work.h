// Provides small launches, copies and reads for the device tests.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "harness.h"

namespace encore::conformance {

// Returns `count` numbers: first, first + 1, ...
inline std::vector<float> counting(int64_t count, float first = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

inline int64_t bytes_of(const std::vector<float>& values) {
  return static_cast<int64_t>(values.size() * sizeof(float));
}

// Reads `count` floats from the device's memory.
inline std::vector<float> read(Stream& stream, const void* device, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  stream.copy_to_host(values.data(), device, bytes_of(values));
  stream.synchronize();
  return values;
}

// Launches two kernels, the second after the first: z = x + y, then w = z * y.
class TwoLaunches {
 public:
  static constexpr int64_t kRows = 3;
  static constexpr int64_t kColumns = 40;
  static constexpr int64_t kCount = kRows * kColumns;

  explicit TwoLaunches(Device& device)
      : memory_(device.allocate(4 * kCount * int64_t{sizeof(float)})) {
    add_ = bind(device, "add", 0, 1, 2);
    mul_ = bind(device, "mul", 2, 1, 3);
  }

  [[nodiscard]] float* tensor(int i) const {
    return reinterpret_cast<float*>(memory_.data()) + i * kCount;
  }

  void set_inputs(Stream& stream, const std::vector<float>& x, const std::vector<float>& y) const {
    stream.copy_to_device(tensor(0), x.data(), bytes_of(x));
    stream.copy_to_device(tensor(1), y.data(), bytes_of(y));
    stream.synchronize();
  }

  void launch(Stream& stream) const {
    const std::vector<int> nothing;
    const std::vector<int> first{0};
    stream.launch({.label = "add", .id = 0, .after = nothing}, add_, {});
    stream.launch({.label = "mul", .id = 1, .after = first}, mul_, {});
  }

  static std::vector<float> expected(const std::vector<float>& x, const std::vector<float>& y) {
    std::vector<float> w(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      w[i] = (x[i] + y[i]) * y[i];
    return w;
  }

 private:
  BoundLaunch bind(Device& device, std::string_view op, int a, int b, int y) const {
    KernelArgs args;
    const Shape shape{kRows, kColumns};
    args.inputs = {{"a", TensorView(tensor(a), DType::kF32, shape)},
                   {"b", TensorView(tensor(b), DType::kF32, shape)}};
    args.outputs = {{"y", TensorView(tensor(y), DType::kF32, shape)}};
    args.step = StepKey::mixed(kRows, 0);
    return device.kernels().choose(op, args).bind(device, args);
  }

  Memory memory_;
  BoundLaunch add_;
  BoundLaunch mul_;
};

}  // namespace encore::conformance
