// Times a model's layers of one-row linears, norms and SiLU, launch by launch and as stages of
// persistent kernels, in a recording over more weights than caches hold:
//   persistent_bench [--stages N] [PART]
// A run has the products from one attention to the next, or N of them; PART: only models whose name
// contains it. Prints microseconds a layer and compares bits.
// Build it with `ninja persistent_bench` (it is not part of `all`).
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "backend/cuda/persistent.h"
#include "backend/device.h"
#include "backend/replay_time.h"

namespace encore {
namespace {

constexpr int64_t kBytesOfWeights = 3LL << 30;
constexpr int kReplays = 15;

struct Model {
  std::string_view name;
  int64_t hidden;
  int64_t qkv;
  int64_t heads;  // columns of o_proj
  int64_t ffn;
};

constexpr Model kModels[] = {{"1B", 2048, 3072, 2048, 8192},
                             {"0.6B", 1024, 4096, 2048, 3072},
                             {"8B", 4096, 6144, 4096, 14336}};

// One layer's launches, with weights of its own, and how they hang together.
struct Layer {
  std::vector<KernelArgs> args;
  std::vector<Stage> stages;
};

class Bench {
 public:
  Bench()
      : device_(create_cuda_device()),
        stream_(device_->create_stream()),
        weights_(device_->allocate(kBytesOfWeights)),
        rows_(device_->allocate(kNumRows * kRowBytes)),
        bytes_per_us_(device_->read_bandwidth() / 1e6) {
    device_->fill_random(*stream_, TensorView(weights_.data(), DType::kBF16, {kBytesOfWeights / 2}),
                         1, 0.02F);
    fmt::print("read stream: {:.3f} TB/s\n", bytes_per_us_ / 1e6);
  }

  void compare(const Model& model, size_t stages_per_run) {
    const std::vector<Layer> layers = make_layers(model);
    std::vector<BoundLaunch> launched;
    std::vector<BoundLaunch> persistent;
    const PersistentKernel& kernel = device_->persistent_kernels().front();
    for (const Layer& layer : layers) {
      for (const Stage& stage : layer.stages)
        launched.push_back(stage.kernel->bind(*device_, *stage.args));
      const std::span<const Stage> stages(layer.stages);
      ENCORE_CHECK(kernel.accepts(stages));
      for (size_t first = 0; first < stages.size(); first += stages_per_run) {
        const size_t count = std::min(stages_per_run, stages.size() - first);
        const auto run = part(stages, first, count);
        persistent.push_back(count == 1 ? run[0].kernel->bind(*device_, *run[0].args)
                                        : kernel.bind(*device_, run));
      }
    }
    const auto num_layers = static_cast<double>(layers.size());
    const auto [launched_us, launched_bits] = run(launched);
    const auto [persistent_us, persistent_bits] = run(persistent);
    const double floor_us = floor(model);
    fmt::print(
        "{:<5} {} layers, us a layer: floor {:.2f}, launches {:.2f} ({:.3f}), persistent "
        "{:.2f} ({:.3f}), bits {}\n",
        model.name, layers.size(), floor_us, launched_us / num_layers,
        launched_us / num_layers / floor_us, persistent_us / num_layers,
        persistent_us / num_layers / floor_us,
        launched_bits == persistent_bits ? "equal" : "DIFFER");
    std::fflush(stdout);
  }

 private:
  enum Row { kAttention, kHidden, kSum, kO, kGated, kDown, kNorm, kNumRows };
  static constexpr int64_t kRowBytes = 1 << 17;

  [[nodiscard]] TensorView row(Row which, int64_t columns) const {
    return {rows_.data() + which * kRowBytes, DType::kBF16, {1, columns}};
  }
  [[nodiscard]] double floor(const Model& m) const {
    const int64_t elements = m.hidden * (m.heads + 3 * m.ffn + m.qkv);
    return static_cast<double>(elements * 2) / bytes_per_us_;
  }
  const Kernel& kernel(std::string_view op, const KernelArgs& args) {
    return device_->kernels().choose(op, args);
  }
  // A part of a run as a run of its own.
  static std::vector<Stage> part(std::span<const Stage> stages, size_t first, size_t count) {
    const std::span<const Stage> some = stages.subspan(first, count);
    std::vector<Stage> result(some.begin(), some.end());
    for (Stage& stage : result) {
      for (Stage::Origin& origin : stage.inputs) {
        if (origin.stage >= 0) origin.stage -= static_cast<int>(first);
        if (origin.stage < 0) origin = {};
      }
      stage.read_after.assign(stage.read_after.size(), true);
    }
    return result;
  }

  Layer make_layer(const Model& m, int64_t& offset) {
    const auto weight = [&](int64_t outputs, int64_t columns) {
      const TensorView view(weights_.data() + offset, DType::kBF16, {outputs, columns});
      offset += view.num_bytes();
      return view;
    };
    TensorView norm = row(kNorm, m.hidden);
    norm.shape = {m.hidden};
    const auto linear = [&](const TensorView& x, const TensorView& w, const TensorView& out) {
      KernelArgs args;
      args.inputs = {x, w};
      args.outputs = {out};
      return args;
    };
    const auto fused = [&](const TensorView& x, Row residual, Row sum, const TensorView& w,
                           const TensorView& out, bool silu_mul) {
      KernelArgs args;
      args.inputs = {x, row(residual, m.hidden), norm, w};
      args.outputs = {row(sum, m.hidden), out};
      args.attrs.set("prologue", std::string("add_rms_norm"));
      args.attrs.set("eps", 1e-5);
      if (silu_mul) args.attrs.set("epilogue", std::string("silu_mul"));
      return args;
    };
    Layer layer;
    layer.args = {linear(row(kAttention, m.heads), weight(m.hidden, m.heads), row(kO, m.hidden)),
                  fused(row(kO, m.hidden), kHidden, kSum, weight(2 * m.ffn, m.hidden),
                        row(kGated, m.ffn), true),
                  linear(row(kGated, m.ffn), weight(m.hidden, m.ffn), row(kDown, m.hidden)),
                  // q is the next layer's "attention".
                  fused(row(kDown, m.hidden), kSum, kHidden, weight(m.qkv, m.hidden),
                        row(kAttention, m.qkv), false)};
    using Origins = std::vector<Stage::Origin>;
    const Origins origins[] = {
        {{}, {}}, {{0, 0}, {}, {}, {}}, {{1, 1}, {}}, {{2, 0}, {1, 0}, {}, {}}};
    const std::vector<bool> reads[] = {{false}, {false, false}, {false}, {true, true}};
    for (int s = 0; s < 4; ++s) {
      layer.stages.push_back({&kernel(s % 2 == 0 ? "linear" : "fused_linear", layer.args[s]),
                              nullptr, origins[s], reads[s]});
    }
    return layer;
  }
  std::vector<Layer> make_layers(const Model& model) {
    std::vector<Layer> layers;
    int64_t offset = 0;
    const int64_t layer_bytes = 2 * model.hidden * (model.heads + 3 * model.ffn + model.qkv);
    while (offset + layer_bytes <= kBytesOfWeights && layers.size() < 32)
      layers.push_back(make_layer(model, offset));
    for (Layer& layer : layers) {
      for (size_t s = 0; s < layer.stages.size(); ++s)
        layer.stages[s].args = &layer.args[s];
    }
    return layers;
  }

  void reset_rows() {
    const TensorView all(rows_.data(), DType::kBF16, {rows_.bytes() / 2});
    device_->fill_random(*stream_, all, 2, 1.0F);
  }
  // Microseconds of a replay, and the rows after the first one.
  std::pair<double, std::vector<std::byte>> run(const std::vector<BoundLaunch>& launches) {
    const auto launch_all = [&] {
      for (const BoundLaunch& bound : launches)
        stream_->launch({.label = "linear", .id = -1, .after = {}}, bound, {});
    };
    reset_rows();
    launch_all();
    std::vector<std::byte> bits(3 * kRowBytes);  // attention, hidden
    stream_->copy_to_host(bits.data(), rows_.data(), 2 * kRowBytes);
    stream_->synchronize();
    RecordingScope scope(*stream_);
    launch_all();
    const auto recording = scope.finish();
    return {median_replay_us(*device_, *stream_, *recording, kReplays), bits};
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Memory weights_;
  Memory rows_;
  double bytes_per_us_;
};

}  // namespace
}  // namespace encore

int main(int argc, char** argv) {
  std::string_view part;
  size_t stages = 4;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--stages" && i + 1 < argc) {
      stages = std::stoul(argv[++i]);
    } else {
      part = argument;
    }
  }
  try {
    encore::Bench bench;
    for (const encore::Model& model : encore::kModels) {
      if (model.name.find(part) != std::string_view::npos) bench.compare(model, stages);
    }
  } catch (const encore::Error& error) {
    fmt::print(stderr, "persistent_bench: {}\n", error.what());
    return encore::exit_code(error.kind());
  }
}
