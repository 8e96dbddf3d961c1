// Times `linear` with few rows, kernel by kernel, in a recording over more weights than caches
// hold, so that each launch overlaps with the one before, as in a step:
//   linear_bench [--json] [PART]    only kernels whose name contains PART
// Figures stand beside the floor: bytes of weights over the best rate of reading measured at the
// start. Build it with `ninja linear_bench` (it is not part of `all`).
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "backend/device.h"

namespace encore {
namespace {

struct Product {
  int64_t outputs;
  int64_t columns;
  DType out = DType::kBF16;

  [[nodiscard]] int64_t weight_bytes() const { return outputs * columns * 2; }
};

// Products that run one after the other, each with its own weights.
struct Case {
  std::string_view name;
  std::vector<Product> products;

  [[nodiscard]] int64_t weight_bytes() const {
    int64_t bytes = 0;
    for (const Product& product : products)
      bytes += product.weight_bytes();
    return bytes;
  }
};

constexpr int64_t kBytesOfWeights = 2LL << 30;
constexpr int64_t kMaxRows = 64;
constexpr int kWarmups = 30;  // the first case finds the clocks low
constexpr int kReplays = 15;

class Bench {
 public:
  Bench()
      : device_(create_cuda_device()),
        stream_(device_->create_stream()),
        weights_(device_->allocate(kBytesOfWeights)),
        x_(device_->allocate(kMaxRows * 16384 * 2)),
        out_(device_->allocate(kMaxRows * 131072 * 4)),
        scratch_(device_->allocate(64 << 20)),
        bytes_per_us_(device_->read_bandwidth() / 1e6) {
    fill(weights_);
    fill(x_);
    fmt::print(stderr, "read stream: {:.3f} TB/s\n", bytes_per_us_ / 1e6);
  }

  // One line for each kernel that takes all of the products.
  void run(const Case& c, int64_t rows, std::string_view part, bool json) {
    const double floor_us = static_cast<double>(c.weight_bytes()) / bytes_per_us_;
    if (!json) fmt::print("{:<18} R={:<3} floor {:7.2f} us |", c.name, rows, floor_us);
    for (const Kernel& kernel : device_->kernels().rows()) {
      if (kernel.op != "linear" || kernel.name == "linear.plain" ||
          kernel.name.find(part) == std::string_view::npos ||
          !std::all_of(c.products.begin(), c.products.end(), [&](const Product& product) {
            return kernel.accepts == nullptr || kernel.accepts(args(product, rows, 0));
          })) {
        continue;
      }
      const double us = time(c, rows, kernel);
      if (json) {
        fmt::print(
            R"({{"case": "{}", "rows": {}, "kernel": "{}", "us": {:.2f}, "floor_us": {:.2f}}})"
            "\n",
            c.name, rows, kernel.name, us, floor_us);
      } else {
        fmt::print(" {} {:.2f} {:.3f} |", kernel.name.substr(7), us, us / floor_us);
      }
    }
    if (!json) fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  // Median microseconds of the case's products together.
  double time(const Case& c, int64_t rows, const Kernel& kernel) {
    const int64_t copies = kBytesOfWeights / c.weight_bytes();
    std::vector<BoundLaunch> launches;
    int64_t offset = 0;
    for (int64_t i = 0; i < copies; ++i) {
      for (const Product& product : c.products) {
        launches.push_back(kernel.bind(*device_, args(product, rows, offset)));
        offset += product.weight_bytes();
      }
    }
    RecordingScope scope(*stream_);
    for (const BoundLaunch& bound : launches) {
      stream_->launch({.label = "linear", .id = -1, .after = {}}, bound, {});
    }
    const auto recording = scope.finish();
    std::vector<double> times;
    for (int i = -kWarmups; i < kReplays; ++i) {
      const auto start = device_->create_event();
      const auto end = device_->create_event();
      stream_->record(*start);
      stream_->replay(*recording);
      stream_->record(*end);
      end->synchronize();
      if (i < 0) continue;
      times.push_back(end->milliseconds_since(*start) * 1000 / static_cast<double>(copies));
    }
    std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
    return times[kReplays / 2];
  }

  void fill(const Memory& memory) {
    const TensorView view(memory.data(), DType::kBF16, {memory.bytes() / 2});
    device_->fill_random(*stream_, view, 1, 0.02F);
  }
  [[nodiscard]] KernelArgs args(const Product& p, int64_t rows, int64_t offset) const {
    KernelArgs result;
    result.inputs = {TensorView(x_.data(), DType::kBF16, {rows, p.columns}),
                     TensorView(weights_.data() + offset, DType::kBF16, {p.outputs, p.columns})};
    result.outputs = {TensorView(out_.data(), p.out, {rows, p.outputs})};
    result.scratch = scratch_.data();
    return result;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Memory weights_;
  Memory x_;
  Memory out_;
  Memory scratch_;
  double bytes_per_us_;
};

std::vector<Case> cases() {
  const Product qkv8{6144, 4096};
  const Product out8{4096, 4096};
  const Product up8{28672, 4096};
  const Product down8{4096, 14336};
  const Product qkv1{3072, 2048};
  const Product out1{2048, 2048};
  const Product up1{16384, 2048};
  const Product down1{2048, 8192};
  return {{"8B layer", {qkv8, out8, up8, down8}},
          {"6144x4096", {qkv8}},
          {"4096x4096", {out8}},
          {"28672x4096", {up8}},
          {"4096x14336", {down8}},
          {"128256x4096 f32", {{128256, 4096, DType::kF32}}},
          {"1B layer", {qkv1, out1, up1, down1}},
          {"3072x2048", {qkv1}},
          {"2048x2048", {out1}},
          {"16384x2048", {up1}},
          {"2048x8192", {down1}},
          {"128256x2048 f32", {{128256, 2048, DType::kF32}}}};
}

}  // namespace
}  // namespace encore

int main(int argc, char** argv) {
  bool json = false;
  std::string_view part;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else {
      part = argv[i];
    }
  }
  try {
    encore::Bench bench;
    for (const encore::Case& c : encore::cases()) {
      for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64})
        bench.run(c, rows, part, json);
    }
  } catch (const encore::Error& error) {
    fmt::print(stderr, "linear_bench: {}\n", error.what());
    return encore::exit_code(error.kind());
  }
}
