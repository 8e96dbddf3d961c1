// Checks the attention of prompts and mixed steps against a plain kernel in float64, and times it:
//   attention_varlen_bench [check|time] [--kernel NAME] [PART]
// PART: only cases whose name contains it. NAME: attention.varlen, or another row of the kernel
// table, for the cases that it takes. Operations are counted as is usual, half of the products of
// all queries with all keys. A time is a launch's share of a recording of many, over the same
// memory. Build it with `ninja attention_varlen_bench` (it is not part of `all`).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "backend/cuda/attention/varlen_cases_bench.h"
#include "backend/cuda/launch.h"
#include "backend/replay_time.h"
#include "base/statistics.h"

namespace encore {
namespace {

using bench::Case;
using bench::Sequence;

// The step's inputs as a plain kernel reads them.
template <typename T>
struct Plain {
  const T* q;
  const T* k_cache;
  const T* v_cache;
  const int32_t* page_table;
  const int32_t* kv_lens;
  const int32_t* query_starts;
  int heads;
  int kv_heads;
  int head_size;
  int page_size;
  int table_width;
  double scale;
};

// A row's results in float64, at 0, 1, ... of `expected`. Grid: (rows, heads); `rows`: pairs of
// sequence and token.
template <typename T>
__global__ void plain_attention(Plain<T> in, const int2* rows, double* expected) {
  extern __shared__ double shared[];  // weights, then partial sums
  const int2 row = rows[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (in.heads / in.kv_heads);
  const int first = in.query_starts[row.x];
  const int count = in.query_starts[row.x + 1] - first;
  const int num_keys = in.kv_lens[row.x] - count + row.y + 1;
  const auto place = [&](int key) {
    const int64_t page = in.page_table[row.x * in.table_width + key / in.page_size];
    return ((page * in.kv_heads + kv_head) * in.page_size + key % in.page_size) * in.head_size;
  };
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const T* q = in.q + (static_cast<int64_t>(first + row.y) * in.heads + head) * in.head_size;
  double largest = -INFINITY;
  for (int key = thread; key < num_keys; key += threads) {
    const T* k = in.k_cache + place(key);
    double score = 0;
    for (int c = 0; c < in.head_size; ++c)
      score +=
          static_cast<double>(cuda::to_float(q[c])) * static_cast<double>(cuda::to_float(k[c]));
    shared[key] = score * in.scale;
    largest = fmax(largest, score * in.scale);
  }
  __shared__ double partial[1024];
  partial[thread] = largest;
  __syncthreads();
  for (int i = 0; i < threads; ++i)
    largest = fmax(largest, partial[i]);
  __syncthreads();
  double sum = 0;
  for (int key = thread; key < num_keys; key += threads) {
    shared[key] = exp(shared[key] - largest);
    sum += shared[key];
  }
  partial[thread] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < threads; ++i)
    sum += partial[i];
  for (int c = thread; c < in.head_size; c += threads) {
    double value = 0;
    for (int key = 0; key < num_keys; ++key)
      value += shared[key] * static_cast<double>(cuda::to_float(in.v_cache[place(key) + c]));
    expected[(static_cast<int64_t>(blockIdx.x) * in.heads + head) * in.head_size + c] =
        num_keys > 0 ? value / sum : 0.0;
  }
}

// NaN in the slots that no token has. Grid: slots of all pages.
template <typename T>
__global__ void poison_slots(T* cache, const uint8_t* used, int kv_heads, int page_size,
                             int head_size) {
  const auto slot = static_cast<int>(blockIdx.x);
  if (used[slot] != 0) return;
  const int64_t page = slot / page_size;
  for (int i = static_cast<int>(threadIdx.x); i < kv_heads * head_size;
       i += static_cast<int>(blockDim.x)) {
    const int64_t row = (page * kv_heads + i / head_size) * page_size + slot % page_size;
    cache[row * head_size + i % head_size] = cuda::from_float<T>(NAN);
  }
}

class Bench {
 public:
  explicit Bench(std::string_view kernel)
      : device_(create_cuda_device()), stream_(device_->create_stream()), kernel_(kernel) {}

  // Relative error over the rows looked at; not a number where something else is wrong.
  double check(const Case& c) {
    return c.dtype == DType::kF16 ? check_as<__half>(c) : check_as<__nv_bfloat16>(c);
  }

  // Does the kernel take it?
  bool takes(const Case& c) {
    const Kernel& row = kernel();
    return row.accepts == nullptr || row.accepts(make(c));
  }
  // Microseconds.
  double time(const Case& c) {
    constexpr int kLaunches = 16;
    constexpr int kReplays = 11;
    const KernelArgs args = make(c);
    const BoundLaunch bound = bind(args);
    RecordingScope scope(*stream_);
    for (int i = 0; i < kLaunches; ++i)
      launch(bound, c.lengths());
    const auto recording = scope.finish();
    return median_replay_us(*device_, *stream_, *recording, kReplays) / kLaunches;
  }

 private:
  static constexpr uint32_t kPoison = 0x7fc17fc1U;

  // Of a plain kernel.
  static cuda::Grid grid(dim3 blocks) {
    return {.blocks = blocks, .threads = 128, .overlap = false};
  }
  TensorView allocate(const Shape& shape, DType dtype) {
    TensorView view(nullptr, dtype, shape);
    memory_.push_back(device_->allocate(std::max<int64_t>(view.num_bytes(), 16)));
    view.data = memory_.back().data();
    return view;
  }
  template <typename V>
  TensorView upload(const Shape& shape, DType dtype, const std::vector<V>& values) {
    const TensorView view = allocate(shape, dtype);
    stream_->copy_to_device(view.data, values.data(), view.num_bytes());
    stream_->synchronize();
    return view;
  }

  KernelArgs make(const Case& c) {
    memory_.clear();
    ++seed_;
    const auto batch = static_cast<int64_t>(c.sequences.size());
    int64_t num_pages = 2;  // that nobody has
    int64_t width = 1;
    const auto pages_of = [&](int64_t length) { return (length + c.page_size - 1) / c.page_size; };
    for (const Sequence& s : c.sequences) {
      num_pages += pages_of(s.length);
      width = std::max(width, pages_of(s.length) + 1);
    }
    std::vector<int32_t> pages(static_cast<size_t>(num_pages));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937_64(seed_));
    std::vector<int32_t> table(static_cast<size_t>(batch * width), pages.back());
    std::vector<int32_t> lengths;
    std::vector<int32_t> starts{0};
    used_.assign(static_cast<size_t>(num_pages * c.page_size), 0);
    for (int64_t b = 0; b < batch; ++b) {
      const Sequence& s = c.sequences[static_cast<size_t>(b)];
      for (int64_t i = 0; i < s.length; ++i) {
        int32_t& entry = table[static_cast<size_t>(b * width + i / c.page_size)];
        if (i % c.page_size == 0) {
          entry = pages.front();
          pages.erase(pages.begin());
        }
        used_[static_cast<size_t>(entry * c.page_size + i % c.page_size)] = 1;
      }
      lengths.push_back(static_cast<int32_t>(s.length));
      starts.push_back(starts.back() + static_cast<int32_t>(s.tokens));
    }
    const Shape cache{num_pages, c.kv_heads, c.page_size, c.head_size};
    const Shape rows{c.num_tokens(), c.heads * c.head_size};
    KernelArgs args;
    args.inputs = {{"q", allocate(rows, c.dtype)},
                   {"k_cache", allocate(cache, c.dtype)},
                   {"v_cache", allocate(cache, c.dtype)},
                   {"page_table", upload({batch, width}, DType::kI32, table)},
                   {"kv_lens", upload({batch}, DType::kI32, lengths)},
                   {"query_starts", upload({batch + 1}, DType::kI32, starts)}};
    args.outputs = {{"o", allocate(rows, c.dtype)}};
    device_->fill_random(*stream_, args.inputs["q"], 3 * seed_, 2.0F);
    device_->fill_random(*stream_, args.inputs["k_cache"], 3 * seed_ + 1, 1.0F);
    device_->fill_random(*stream_, args.inputs["v_cache"], 3 * seed_ + 2, 1.0F);
    stream_->fill(args.outputs["o"].data, kPoison, args.outputs["o"].num_bytes());
    args.attrs.set("scale", 1.0 / std::sqrt(static_cast<double>(c.head_size)));
    args.step = StepKey::mixed(c.num_tokens(), batch);
    if (c.uniform_q > 0) args.step.q = c.uniform_q;
    stream_->synchronize();
    return args;
  }

  const Kernel& kernel() {
    for (const Kernel& row : device_->kernels().rows()) {
      if (row.name == kernel_) return row;
    }
    fail(ErrorKind::kUsage, "no kernel is called {}", kernel_);
  }
  BoundLaunch bind(KernelArgs args) {
    const Kernel& row = kernel();
    if (row.workspace != nullptr) {
      const Workspace workspace = row.workspace(args);
      args.scratch = allocate({workspace.scratch_bytes}, DType::kFP8).data;
      const TensorView counters = allocate({workspace.num_counters + 4}, DType::kI32);
      stream_->fill(counters.data, 0, counters.num_bytes());
      args.counters = counters.as<uint32_t>();
      stream_->synchronize();
    }
    return row.bind(*device_, args);
  }
  void launch(const BoundLaunch& bound, const StepLengths& lengths) {
    stream_->launch({.label = "attention", .id = -1, .after = {}}, bound, lengths);
  }

  template <typename T>
  double check_as(const Case& c) {
    const KernelArgs args = make(c);
    const TensorView used = upload({static_cast<int64_t>(used_.size())}, DType::kFP8, used_);
    for (const char* cache : {"k_cache", "v_cache"}) {
      cuda::launch(*stream_, grid(dim3(static_cast<unsigned>(used_.size()))), poison_slots<T>,
                   args.inputs[cache].as<T>(), used.as<uint8_t>(), static_cast<int>(c.kv_heads),
                   static_cast<int>(c.page_size), static_cast<int>(c.head_size));
    }
    const std::vector<uint16_t> got = run(c, args);
    if (run(c, args) != got) {
      fmt::print("    two runs differ\n");
      return NAN;
    }
    // Some rows of each sequence, the first and the last among them.
    std::vector<int2> rows;
    std::vector<int64_t> row_of;
    std::vector<uint8_t> owned(static_cast<size_t>(c.num_tokens()), 0);
    int64_t start = 0;
    for (size_t b = 0; b < c.sequences.size(); ++b) {
      const Sequence& s = c.sequences[b];
      const int64_t stride = 1 + s.tokens * s.length / (1 << 21);
      for (int64_t t = 0; t < s.tokens; ++t) {
        owned[static_cast<size_t>(start + t)] =
            static_cast<uint8_t>(s.length > 0 || c.uniform_q > 0);
        if (s.length == 0 || (t % stride != 0 && t + 1 != s.tokens)) continue;
        rows.push_back(make_int2(static_cast<int>(b), static_cast<int>(t)));
        row_of.push_back(start + t);
      }
      start += s.tokens;
    }
    const int64_t columns = c.heads * c.head_size;
    for (int64_t t = 0; t < c.num_tokens(); ++t) {
      for (int64_t i = 0; owned[static_cast<size_t>(t)] == 0 && i < columns; ++i) {
        if (got[static_cast<size_t>(t * columns + i)] == (kPoison & 0xffffU)) continue;
        fmt::print("    row {}, which no sequence has, was written\n", t);
        return NAN;
      }
    }
    return error<T>(c, args, rows, row_of, got);
  }

  std::vector<uint16_t> run(const Case& c, const KernelArgs& args) {
    const BoundLaunch bound = bind(args);
    const TensorView& out = args.outputs["o"];
    stream_->fill(out.data, kPoison, out.num_bytes());
    launch(bound, c.lengths());
    launch(bound, c.lengths());  // which finds the counter as the first has left it
    std::vector<uint16_t> host(static_cast<size_t>(out.shape.num_elements()));
    stream_->copy_to_host(host.data(), out.data, out.num_bytes());
    stream_->synchronize();
    return host;
  }

  template <typename T>
  double error(const Case& c, const KernelArgs& args, const std::vector<int2>& rows,
               const std::vector<int64_t>& row_of, const std::vector<uint16_t>& got) {
    if (rows.empty()) return 0;
    const int64_t columns = c.heads * c.head_size;
    const auto count = static_cast<int64_t>(rows.size());
    const TensorView rows_there = upload({2 * count}, DType::kI32, rows);
    const TensorView expected = allocate({2 * count * columns}, DType::kF32);
    const Plain<T> in{args.inputs["q"].as<T>(),
                      args.inputs["k_cache"].as<T>(),
                      args.inputs["v_cache"].as<T>(),
                      args.inputs["page_table"].as<int32_t>(),
                      args.inputs["kv_lens"].as<int32_t>(),
                      args.inputs["query_starts"].as<int32_t>(),
                      static_cast<int>(c.heads),
                      static_cast<int>(c.kv_heads),
                      static_cast<int>(c.head_size),
                      static_cast<int>(c.page_size),
                      static_cast<int>(args.inputs["page_table"].row_elements()),
                      args.attrs.get_double("scale")};
    cuda::Grid launched = grid(dim3(static_cast<unsigned>(count), static_cast<unsigned>(c.heads)));
    // The compiler reads weights in pairs.
    launched.shared_bytes = static_cast<size_t>(cuda::round_up(c.lengths().max_kv_len, 2) * 8);
    const auto kernel = plain_attention<T>;
    cuda::allow_shared_memory(kernel, static_cast<int64_t>(launched.shared_bytes));
    cuda::launch(*stream_, launched, kernel, in, rows_there.as<int2>(), expected.as<double>());
    std::vector<double> want(static_cast<size_t>(count * columns));
    stream_->copy_to_host(want.data(), expected.data, static_cast<int64_t>(want.size() * 8));
    stream_->synchronize();
    double squares = 0;
    double differences = 0;
    double worst = 0;
    for (int64_t r = 0; r < count; ++r) {
      double row_squares = 0;
      double row_differences = 0;
      for (int64_t i = 0; i < columns; ++i) {
        const double w = want[static_cast<size_t>(r * columns + i)];
        const T g = std::bit_cast<T>(
            got[static_cast<size_t>(row_of[static_cast<size_t>(r)] * columns + i)]);
        const double d = static_cast<double>(static_cast<float>(g)) - w;
        row_squares += w * w;
        row_differences += d * d;
      }
      squares += row_squares;
      differences += row_differences;
      const double of_row = std::sqrt(row_differences / std::max(row_squares, 1e-30));
      if (!(of_row <= worst)) {
        worst = of_row;
        worst_row_ = row_of[static_cast<size_t>(r)];
      }
    }
    fmt::print("    worst row {} of {}: {:.2e}\n", worst_row_, c.num_tokens(), worst);
    return std::isfinite(worst) ? std::sqrt(differences / squares) : NAN;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::string kernel_;
  std::vector<Memory> memory_;
  std::vector<uint8_t> used_;
  uint64_t seed_ = 0;
  int64_t worst_row_ = 0;
};

int run_all(bool checks_only, bool times_only, std::string_view kernel, std::string_view part) {
  Bench on_device(kernel);
  int num_wrong = 0;
  for (const Case& c : bench::checks()) {
    if (times_only || c.name.find(part) == std::string_view::npos || !on_device.takes(c)) continue;
    const double error = on_device.check(c);
    const bool good = error < 6e-3;
    num_wrong += static_cast<int>(!good);
    fmt::print("{:<40} error {:.2e}{}\n", c.name, error, good ? "" : "  WRONG");
    std::fflush(stdout);
  }
  for (const Case& c : bench::timings()) {
    if (checks_only || c.name.find(part) == std::string_view::npos || !on_device.takes(c)) continue;
    const double us = on_device.time(c);
    fmt::print("{:<40} {:9.1f} us {:7.1f} TFLOP/s\n", c.name, us, c.flops() / us * 1e-6);
    std::fflush(stdout);
  }
  return num_wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace encore

int main(int argc, char** argv) {
  bool checks_only = false;
  bool times_only = false;
  std::string_view kernel = "attention.varlen";
  std::string_view part;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "check") {
      checks_only = true;
    } else if (argument == "time") {
      times_only = true;
    } else if (argument == "--kernel" && i + 1 < argc) {
      kernel = argv[++i];
    } else {
      part = argument;
    }
  }
  try {
    return encore::run_all(checks_only, times_only, kernel, part);
  } catch (const encore::Error& error) {
    fmt::print(stderr, "attention_varlen_bench: {}\n", error.what());
    return encore::exit_code(error.kind());
  }
}
