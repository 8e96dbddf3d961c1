// Searches for the fastest way to cut the products of a layer, which `encore bench linear` times as
// they are served, and compares kernels by turns.
//
// Times the products of a model's layer, silu_mul included, and with up to 256 rows those of its
// logits, in a recording over more weights than caches hold, so that each launch overlaps with the
// one before, as in a step:
//   linear_bench [--search | --turns] [--rows R[,R...]] [PART]
// PART: only models whose name contains it. Figures are printed with their floor. The floor of a
// product is the longer of two times: its weights' bytes over the best rate of reading, which is
// measured at the start, and its operations over 690 TFLOP/s. Kernels are tuned as at an engine's
// start. --search looks for the fastest way to cut each product for our GEMMs within the layer's
// chain, and checks what it tries against the plain kernel. --turns compares cuBLASLt with ours,
// product by product, on a card that is as hot as a server's. Build it with `ninja linear_bench`
// (it is not part of `all`).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/gemm.h"
#include "backend/cuda/linear/skinny_gemm.h"
#include "backend/device.h"
#include "backend/fused_linear.h"
#include "backend/replay_time.h"
#include "backend/tuning.h"

namespace encore {
namespace {

using cuda::SkinnyGemmTiling;

constexpr double kFlopsPerUs = 690e6;  // operations that an H200 sustains in bf16
constexpr int64_t kBytesOfWeights = 3LL << 30;
constexpr int64_t kMaxRows = 8192;
constexpr int64_t kMaxLogitsRows = 256;
constexpr int64_t kMostOutputBytes = kMaxRows * 28672 * 2;  // enough for every output
constexpr int kReplays = 9;

struct Product {
  int64_t outputs;
  int64_t columns;
  DType out = DType::kBF16;
  bool silu_mul = false;  // silu_mul follows the product, and halves its outputs

  [[nodiscard]] int64_t weight_bytes() const { return outputs * columns * 2; }
};

// Products that run one after the other. Each has its own weights.
struct Chain {
  std::string_view model;
  std::string name;
  std::vector<Product> products;
};

// A function that binds a product's launch. It returns null if its kernel does not take the
// product.
using Bind = std::function<BoundLaunch(const KernelArgs& args)>;

// A way to cut a product, with the name under which results are printed.
struct Cut {
  std::string name;
  Bind bind;
};

class Bench {
 public:
  Bench()
      : device_(create_cuda_device()),
        stream_(device_->create_stream()),
        weights_(device_->allocate(kBytesOfWeights)),
        x_(device_->allocate(kMaxRows * 16384 * 2)),
        out_(device_->allocate(kMostOutputBytes)),
        scratch_(device_->allocate(kMostOutputBytes + (64 << 20))),
        counters_(device_->allocate(1 << 16)),
        bytes_per_us_(device_->read_bandwidth() / 1e6) {
    device_->tuner().configure({.tune = Tune::kFresh, .cache = {}});
    tuning_.emplace(device_->tuner());
    fill(weights_);
    fill(x_);
    stream_->fill(counters_.data(), 0, counters_.bytes());
    stream_->synchronize();
    fmt::print("read stream: {:.3f} TB/s\n", bytes_per_us_ / 1e6);
  }

  [[nodiscard]] double floor_us(const Chain& chain, int64_t rows) const {
    double us = 0;
    for (const Product& p : chain.products) {
      us += std::max(static_cast<double>(p.weight_bytes()) / bytes_per_us_,
                     2.0 * static_cast<double>(p.outputs * p.columns * rows) / kFlopsPerUs);
    }
    return us;
  }

  // Binds the kernel of linear (or of fused_linear, for a product with silu_mul) whose name in the
  // kernel table ends in `way`.
  Bind kernel(std::string_view way) {
    return [this, way](const KernelArgs& args) {
      return bind(fmt::format("{}.{}", args.attrs.empty() ? "linear" : "fused_linear", way), args);
    };
  }
  // Binds the kernel of linear whose name ends in `way`. silu_mul becomes a launch of its own.
  Bind unfused(std::string_view way) {
    return [this, way](const KernelArgs& args) -> BoundLaunch {
      std::vector<BoundLaunch> launches;
      for (const Parts::Part& part : linear_parts(args).parts) {
        launches.push_back(part.op == "linear" ? bind(fmt::format("linear.{}", way), part.args)
                                               : bind("silu_mul.packed", part.args));
        if (launches.back() == nullptr) return nullptr;
      }
      return [launches](Stream& stream, const StepLengths& lengths) {
        for (const BoundLaunch& launch : launches)
          launch(stream, lengths);
      };
    };
  }
  // Returns the ways in which our GEMM for `rows` rows may cut a product, the likeliest first.
  std::vector<Cut> cuts(const Product& p, int64_t rows) {
    const int multiprocessors = cuda::chip(*device_).num_multiprocessors;
    std::vector<Cut> result;
    if (rows <= cuda::kMaxSkinnyRows) {
      for (const SkinnyGemmTiling& t :
           cuda::skinny_gemm_tilings(rows, p.outputs, p.columns, multiprocessors, p.silu_mul)) {
        result.push_back({to_text(t), [this, t](const KernelArgs& args) {
                            return cuda::bind_skinny_gemm(*device_, args, t);
                          }});
      }
    } else {
      for (const int tile_rows : cuda::gemm_tile_rows(rows, p.outputs, multiprocessors)) {
        result.push_back({std::to_string(tile_rows), [this, tile_rows](const KernelArgs& args) {
                            return cuda::bind_gemm(*device_, args, tile_rows);
                          }});
      }
    }
    return result;
  }
  // Returns the name of the cut that the kernel chooses by itself.
  std::string tuned_cut(const Product& product, int64_t rows) {
    const KernelArgs bound = args(product, rows, 0);
    if (rows <= cuda::kMaxSkinnyRows) return to_text(cuda::skinny_gemm_tiling(*device_, bound));
    return std::to_string(cuda::gemm_tile_rows(*device_, bound));
  }

  // Records the chain, repeated until caches cannot hold its weights. Returns null if a kernel does
  // not take a product. `binds` has one entry for each product.
  std::unique_ptr<Recording> record(const Chain& chain, int64_t rows,
                                    const std::vector<Bind>& binds) {
    std::vector<BoundLaunch> launches;
    int64_t offset = 0;
    for (int64_t i = 0; i < num_copies(chain); ++i) {
      for (size_t p = 0; p < chain.products.size(); ++p) {
        launches.push_back(binds[p](args(chain.products[p], rows, offset)));
        if (launches.back() == nullptr) return nullptr;
        offset += chain.products[p].weight_bytes();
      }
    }
    RecordingScope scope(*stream_);
    for (const BoundLaunch& bound : launches)
      launch(bound);
    return scope.finish();
  }
  // Returns the median time of one chain. Units: microseconds.
  double time(const Chain& chain, const Recording& recording, int replays = kReplays) {
    return median_replay_us(*device_, *stream_, recording, replays) /
           static_cast<double>(num_copies(chain));
  }
  // Returns the median time of one chain, or infinity if a kernel does not take a product. Units:
  // microseconds.
  double time(const Chain& chain, int64_t rows, const std::vector<Bind>& binds) {
    const auto recording = record(chain, rows, binds);
    return recording == nullptr ? INFINITY : time(chain, *recording);
  }

  // Returns the largest difference from the plain kernel, divided by the root mean square of its
  // outputs. Returns NaN if two runs differ.
  double error(const Product& product, int64_t rows, const Bind& bind) {
    const std::vector<float> want = run(product, rows, unfused("plain"));
    const std::vector<float> got = run(product, rows, bind);
    if (run(product, rows, bind) != got) return NAN;
    double squares = 0;
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      squares += static_cast<double>(want[i]) * want[i];
      const double difference = std::abs(static_cast<double>(want[i]) - got[i]);
      if (!(difference <= worst)) worst = difference;
    }
    return worst / std::sqrt(squares / static_cast<double>(want.size()));
  }

 private:
  BoundLaunch bind(std::string_view name, const KernelArgs& args) {
    for (const Kernel& row : device_->kernels().rows()) {
      if (row.name == name && (row.accepts == nullptr || row.accepts(args)))
        return row.bind(*device_, args);
    }
    return nullptr;
  }
  static int64_t num_copies(const Chain& chain) {
    int64_t bytes = 0;
    for (const Product& product : chain.products)
      bytes += product.weight_bytes();
    return kBytesOfWeights / bytes;
  }
  void launch(const BoundLaunch& bound) {
    stream_->launch({.label = "linear", .id = -1, .after = {}}, bound, {});
  }
  std::vector<float> run(const Product& product, int64_t rows, const Bind& bind) {
    constexpr uint32_t kNans = 0x7fc07fc0;
    const KernelArgs bound = args(product, rows, 0);
    const TensorView& out = bound.outputs["y"];
    stream_->fill(out.data, kNans, out.num_bytes());
    launch(bind(bound));
    std::vector<std::byte> host(static_cast<size_t>(out.num_bytes()));
    stream_->copy_to_host(host.data(), out.data, out.num_bytes());
    stream_->synchronize();
    return visit_float(out.dtype, [&](auto zero) {
      const auto* values = reinterpret_cast<const decltype(zero)*>(host.data());
      return std::vector<float>(values, values + out.shape.num_elements());
    });
  }
  void fill(const Memory& memory) {
    const TensorView view(memory.data(), DType::kBF16, {memory.bytes() / 2});
    device_->fill_random(*stream_, view, 1, 0.5F);
  }
  [[nodiscard]] KernelArgs args(const Product& p, int64_t rows, int64_t offset) const {
    KernelArgs result;
    const int64_t columns = p.outputs / (p.silu_mul ? 2 : 1);
    result.inputs = {
        {"x", TensorView(x_.data(), DType::kBF16, {rows, p.columns})},
        {"weight", TensorView(weights_.data() + offset, DType::kBF16, {p.outputs, p.columns})}};
    result.outputs = {{"y", TensorView(out_.data(), p.out, {rows, columns})}};
    if (p.silu_mul) result.attrs.set("epilogue", std::string("silu_mul"));
    result.scratch = scratch_.data();
    result.counters = reinterpret_cast<uint32_t*>(counters_.data());
    return result;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Memory weights_;
  Memory x_;
  Memory out_;
  Memory scratch_;
  Memory counters_;
  double bytes_per_us_;
  std::optional<Tuner::Phase> tuning_;
};

std::vector<Chain> chains() {
  return {{"8B",
           "layer",
           {{6144, 4096}, {4096, 4096}, {28672, 4096, DType::kBF16, true}, {4096, 14336}}},
          {"8B", "logits", {{128256, 4096, DType::kF32}}},
          {"1B",
           "layer",
           {{3072, 2048}, {2048, 2048}, {16384, 2048, DType::kBF16, true}, {2048, 8192}}},
          {"1B", "logits", {{128256, 2048, DType::kF32}}},
          {"0.6B",
           "layer",
           {{4096, 1024}, {1024, 2048}, {6144, 1024, DType::kBF16, true}, {1024, 3072}}},
          {"0.6B", "logits", {{151936, 1024, DType::kF32}}}};
}

// Tries the ways to cut one product after the other, and keeps for each product the way with which
// the whole chain is fastest.
void search(Bench& bench, const Chain& chain, int64_t rows) {
  constexpr int kRounds = 2;
  const double floor = bench.floor_us(chain, rows);
  std::vector<Bind> binds;
  for (const Product& p : chain.products)
    binds.push_back(bench.cuts(p, rows).front().bind);
  std::vector<std::string> names(chain.products.size(), "-");
  double best = bench.time(chain, rows, binds);
  double best_of_ours = best;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t p = 0; p < chain.products.size(); ++p) {
      std::vector<Cut> candidates = bench.cuts(chain.products[p], rows);
      const size_t num_ours = candidates.size();
      candidates.push_back({"cublaslt", bench.unfused("cublaslt")});
      for (size_t c = 0; c < candidates.size(); ++c) {
        const Cut& candidate = candidates[c];
        std::vector<Bind> changed = binds;
        changed[p] = candidate.bind;
        const double us = bench.time(chain, rows, changed);
        if (round == kRounds - 1) fmt::print("    {} {} {:.2f}\n", p, candidate.name, us);
        if (c < num_ours) best_of_ours = std::min(best_of_ours, us);
        if (us >= best) continue;
        best = us;
        binds = changed;
        names[p] = candidate.name;
      }
    }
  }
  fmt::print("{:<5}{:<7} R={:<3} best {:.3f} ({:.3f}):", chain.model, chain.name, rows,
             best / floor, best_of_ours / floor);
  for (size_t p = 0; p < chain.products.size(); ++p) {
    const Product& product = chain.products[p];
    const bool is_large = product.outputs > 65536;
    fmt::print(" {}x{} {} ({:.0e})", product.outputs, product.columns, names[p],
               is_large ? 0.0 : bench.error(product, rows, binds[p]));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void compare_kernels(Bench& bench, const Chain& chain, int64_t rows) {
  const double floor = bench.floor_us(chain, rows);
  fmt::print("{:<5}{:<7} R={:<3} floor {:7.2f} us |", chain.model, chain.name, rows, floor);
  const auto time = [&](std::string_view name, const Bind& bind) {
    const double us = bench.time(chain, rows, std::vector<Bind>(chain.products.size(), bind));
    if (std::isfinite(us)) fmt::print(" {} {:.2f} {:.3f} |", name, us, us / floor);
  };
  for (const std::string_view way : {"gemv", "skinny_gemm", "fastest"})
    time(way, bench.kernel(way));
  // In the following measurements silu_mul is a launch of its own.
  for (const std::string_view way : {"skinny_gemm", "cublaslt", "fastest"})
    time(fmt::format("{}, silu_mul", way), bench.unfused(way));
  for (const Product& product : chain.products)
    fmt::print(" {}", bench.tuned_cut(product, rows));
  fmt::print("\n");
  std::fflush(stdout);
}

// Times cuBLASLt for all products, and for each product the likeliest cuts of our kernels. They
// take turns in rounds of a quarter of a second each, so that the card's power limit affects all of
// them alike.
void take_turns(Bench& bench, const Chain& chain, int64_t rows) {
  constexpr int kRounds = 4;
  constexpr double kTurnUs = 250e3;
  constexpr size_t kMostCuts = 3;
  struct Way {
    std::string name;
    std::unique_ptr<Recording> recording;
    std::vector<double> us;
  };
  std::vector<Way> ways;
  const std::vector<Bind> library(chain.products.size(), bench.unfused("cublaslt"));
  ways.push_back({"cublaslt", bench.record(chain, rows, library), {}});
  for (size_t p = 0; p < chain.products.size(); ++p) {
    const Product& product = chain.products[p];
    std::vector<Cut> cuts = bench.cuts(product, rows);
    cuts.resize(std::min(cuts.size(), kMostCuts));
    for (const Cut& cut : cuts) {
      std::vector<Bind> binds = library;
      binds[p] = cut.bind;
      ways.push_back({fmt::format("{}x{} {}", product.outputs, product.columns, cut.name),
                      bench.record(chain, rows, binds),
                      {}});
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    for (Way& way : ways) {
      const int replays = static_cast<int>(kTurnUs / bench.time(chain, *way.recording, 1)) / 7 + 3;
      way.us.push_back(bench.time(chain, *way.recording, replays));
    }
  }
  fmt::print("{:<5}{:<7} R={:<3} by turns:", chain.model, chain.name, rows);
  for (Way& way : ways) {
    std::sort(way.us.begin(), way.us.end());
    fmt::print(" {} {:.2f} |", way.name, (way.us[kRounds / 2 - 1] + way.us[kRounds / 2]) / 2);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace encore

int main(int argc, char** argv) {
  bool searches = false;
  bool takes_turns = false;
  std::string_view part;
  std::vector<int64_t> rows;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--search") {
      searches = true;
    } else if (argument == "--turns") {
      takes_turns = true;
    } else if (argument == "--rows" && i + 1 < argc) {
      std::istringstream list(argv[++i]);
      for (std::string item; std::getline(list, item, ',');)
        rows.push_back(std::stoll(item));
    } else {
      part = argument;
    }
  }
  if (rows.empty()) rows = {1, 2, 4, 8, 16, 24, 32, 48, 64, 72, 96, 112, 128, 160, 192, 224, 256};
  try {
    for (const int64_t r : rows) {
      if (r < 1 || r > encore::kMaxRows)
        encore::fail(encore::ErrorKind::kUsage, "--rows {}: 1 to {}", r, encore::kMaxRows);
    }
    encore::Bench bench;
    for (const encore::Chain& chain : encore::chains()) {
      if (chain.model.find(part) == std::string_view::npos) continue;
      for (const int64_t r : rows) {
        if (chain.name == "logits" && r > encore::kMaxLogitsRows) continue;
        if (takes_turns) {
          encore::take_turns(bench, chain, r);
          continue;
        }
        encore::compare_kernels(bench, chain, r);
        if (searches) encore::search(bench, chain, r);
      }
    }
  } catch (const encore::Error& error) {
    fmt::print(stderr, "linear_bench: {}\n", error.what());
    return encore::exit_code(error.kind());
  }
}
