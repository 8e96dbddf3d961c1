// Times `linear` with one row, kernel by kernel, in a recording over more weights than caches hold:
//   linear_bench [--json]
// Build it with `ninja linear_bench` (it is not part of `all`).
#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/core.h>

#include "backend/device.h"

namespace encore {
namespace {

struct Case {
  int64_t outputs;
  int64_t columns;
  DType out;
};

constexpr int64_t kBytesOfWeights = 2LL << 30;
constexpr int kReplays = 20;

class Bench {
 public:
  Bench()
      : device_(create_cuda_device()),
        stream_(device_->create_stream()),
        weights_(device_->allocate(kBytesOfWeights)),
        x_(device_->allocate(1 << 20)),
        out_(device_->allocate(4 << 20)),
        scratch_(device_->allocate(64 << 20)) {
    fill(weights_);
    fill(x_);
  }

  // Median microseconds of one launch.
  double time(const Case& c, const Kernel& kernel) {
    const int64_t weight_bytes = c.outputs * c.columns * 2;
    const int64_t copies = kBytesOfWeights / weight_bytes;
    std::vector<BoundLaunch> launches;
    for (int64_t i = 0; i < copies; ++i) {
      const TensorView weight(weights_.data() + i * weight_bytes, DType::kBF16,
                              {c.outputs, c.columns});
      launches.push_back(kernel.bind(*device_, args(c, weight)));
    }
    RecordingScope scope(*stream_);
    for (const BoundLaunch& bound : launches) {
      stream_->launch({.label = "linear", .id = -1, .after = {}}, bound, {});
    }
    const auto recording = scope.finish();
    std::vector<double> times;
    for (int i = 0; i < kReplays; ++i) {
      const auto start = device_->create_event();
      const auto end = device_->create_event();
      stream_->record(*start);
      stream_->replay(*recording);
      stream_->record(*end);
      end->synchronize();
      times.push_back(end->milliseconds_since(*start) * 1000 / static_cast<double>(copies));
    }
    std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
    return times[kReplays / 2];
  }

  // Prints one line for each kernel that takes the shape.
  void run(const Case& c, bool json) {
    const double bytes = static_cast<double>(c.outputs * c.columns * 2);
    for (const Kernel& kernel : device_->kernels().rows()) {
      if (kernel.op != "linear" || kernel.name == "linear.plain") continue;
      const TensorView weight(weights_.data(), DType::kBF16, {c.outputs, c.columns});
      if (kernel.accepts != nullptr && !kernel.accepts(args(c, weight))) continue;
      const double us = time(c, kernel);
      const double rate = bytes / us / 1e6;
      if (json) {
        fmt::print(
            R"({{"outputs": {}, "columns": {}, "kernel": "{}", "us": {:.2f}, "tb_per_s": {:.3f}}})"
            "\n",
            c.outputs, c.columns, kernel.name, us, rate);
      } else {
        fmt::print("{:>7} x {:<6} {:<18} {:8.2f} us  {:6.3f} TB/s\n", c.outputs, c.columns,
                   kernel.name, us, rate);
      }
    }
  }

 private:
  void fill(const Memory& memory) {
    const TensorView view(memory.data(), DType::kBF16, {memory.bytes() / 2});
    device_->fill_random(*stream_, view, 1, 0.02F);
  }
  [[nodiscard]] KernelArgs args(const Case& c, const TensorView& weight) const {
    KernelArgs result;
    result.inputs = {TensorView(x_.data(), DType::kBF16, {1, c.columns}), weight};
    result.outputs = {TensorView(out_.data(), c.out, {1, c.outputs})};
    result.scratch = scratch_.data();
    return result;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Memory weights_;
  Memory x_;
  Memory out_;
  Memory scratch_;
};

}  // namespace
}  // namespace encore

int main(int argc, char** argv) {
  using encore::DType;
  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  try {
    encore::Bench bench;
    for (const encore::Case& c :
         {encore::Case{28672, 4096, DType::kBF16}, encore::Case{6144, 4096, DType::kBF16},
          encore::Case{4096, 4096, DType::kBF16}, encore::Case{4096, 14336, DType::kBF16},
          encore::Case{128256, 4096, DType::kF32}, encore::Case{2048, 2048, DType::kBF16},
          encore::Case{3072, 1024, DType::kBF16}}) {
      bench.run(c, json);
    }
  } catch (const encore::Error& error) {
    fmt::print(stderr, "linear_bench: {}\n", error.what());
    return encore::exit_code(error.kind());
  }
}
