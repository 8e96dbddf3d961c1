// Makes attention steps of the sizes of real models on a device. attention_varlen_bench uses them,
// and so does the test against float64 (tests/conformance/real_attention_test.cc).
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "base/dtype.h"
#include "base/rounding.h"

namespace encore::bench {

struct Sequence {
  int64_t tokens;  // the number of new tokens, which are the last of `length`
  int64_t length;
};

// One step of attention: its sequences, and the shapes and dtypes of its operands.
struct Case {
  std::string name;
  std::vector<Sequence> sequences;
  int64_t heads = 32;
  int64_t kv_heads = 8;
  int64_t head_size = 128;
  int64_t page_size = 16;
  DType dtype = DType::kBF16;
  std::optional<DType> kv_dtype = {};  // the dtype of the caches; absent: `dtype`
  int64_t padding_tokens = 0;          // rows of q behind those of the sequences
  int64_t query_gap = 0;               // elements between rows of q
  int uniform_q = 0;
  bool batch_invariant = false;

  [[nodiscard]] int64_t num_tokens() const {
    int64_t tokens = padding_tokens;
    for (const Sequence& s : sequences)
      tokens += s.tokens;
    return tokens;
  }
  [[nodiscard]] int64_t num_columns() const { return heads * head_size; }
  [[nodiscard]] int64_t num_pages(const Sequence& s) const { return div_up(s.length, page_size); }
  [[nodiscard]] StepLengths lengths() const {
    StepLengths longest;
    for (const Sequence& s : sequences) {
      longest.max_query_len = std::max(longest.max_query_len, s.tokens);
      longest.max_kv_len = std::max(longest.max_kv_len, s.length);
    }
    return longest;
  }
  [[nodiscard]] double flops() const {
    double pairs = 0;
    for (const Sequence& s : sequences) {
      const auto tokens = static_cast<double>(s.tokens);
      pairs += tokens * (static_cast<double>(s.length) - tokens / 2);
    }
    return 4.0 * pairs * static_cast<double>(num_columns());
  }
};

// The operands of a case: random numbers, and pages in random order. `seed` decides all of them.
class PagedStep {
 public:
  PagedStep(Device& device, Stream& stream, const Case& c, uint64_t seed)
      : device_(device), stream_(stream) {
    const auto batch = static_cast<int64_t>(c.sequences.size());
    int64_t num_pages = 2;  // pages that no sequence has
    int64_t width = 1;
    for (const Sequence& s : c.sequences) {
      num_pages += c.num_pages(s);
      width = std::max(width, c.num_pages(s) + 1);
    }
    std::vector<int32_t> free_pages(static_cast<size_t>(num_pages));
    std::iota(free_pages.begin(), free_pages.end(), 0);
    std::shuffle(free_pages.begin(), free_pages.end(), std::mt19937_64(seed));
    std::vector<int32_t> table(static_cast<size_t>(batch * width), -1);
    std::vector<int32_t> lengths;
    std::vector<int32_t> starts{0};
    used_slots_.assign(static_cast<size_t>(num_pages * c.page_size), 0);
    for (int64_t b = 0; b < batch; ++b) {
      const Sequence& s = c.sequences[static_cast<size_t>(b)];
      for (int64_t i = 0; i < c.num_pages(s); ++i) {
        const int32_t page = free_pages.back();
        free_pages.pop_back();
        table[static_cast<size_t>(b * width + i)] = page;
        std::fill_n(used_slots_.begin() + page * c.page_size,
                    std::min(c.page_size, s.length - i * c.page_size), uint8_t{1});
      }
      lengths.push_back(static_cast<int32_t>(s.length));
      starts.push_back(starts.back() + static_cast<int32_t>(s.tokens));
    }
    const DType kv_dtype = c.kv_dtype.value_or(c.dtype);
    const Shape cache{num_pages, c.kv_heads, c.page_size, c.head_size};
    TensorView q = random({c.num_tokens(), c.num_columns() + c.query_gap}, c.dtype, 3 * seed, 2.0F);
    q.shape = {c.num_tokens(), c.num_columns()};
    args_.inputs = {{"q", q},
                    {"k_cache", random(cache, kv_dtype, 3 * seed + 1, 1.0F)},
                    {"v_cache", random(cache, kv_dtype, 3 * seed + 2, 1.0F)},
                    {"page_table", upload({batch, width}, DType::kI32, table)},
                    {"kv_lens", upload({batch}, DType::kI32, lengths)},
                    {"query_starts", upload({batch + 1}, DType::kI32, starts)}};
    args_.outputs = {{"o", allocate({c.num_tokens(), c.num_columns()}, c.dtype)}};
    args_.attrs.set("scale", 1.0 / std::sqrt(static_cast<double>(c.head_size)));
    args_.step = StepKey::mixed(c.num_tokens(), batch);
    if (c.uniform_q > 0) args_.step.q = c.uniform_q;
    args_.batch_invariant = c.batch_invariant;
  }

  [[nodiscard]] const KernelArgs& args() const { return args_; }
  // Returns, for each slot of the caches, 1 if a sequence has a token in it, else 0.
  [[nodiscard]] const std::vector<uint8_t>& used_slots() const { return used_slots_; }

  // Binds a launch of the step with its own scratch memory.
  BoundLaunch bind(const Kernel& kernel) { return bind(kernel, args_); }
  BoundLaunch bind(const Kernel& kernel, KernelArgs args) {
    if (kernel.workspace != nullptr) {
      const Workspace workspace = kernel.workspace(args);
      args.scratch = allocate({workspace.scratch_bytes}, DType::kFP8).data;
      const TensorView counters = allocate({workspace.num_counters}, DType::kI32);
      stream_.fill(counters.data, 0, counters.num_bytes());
      args.counters = counters.as<uint32_t>();
      stream_.synchronize();
    }
    return kernel.bind(device_, args);
  }

  TensorView allocate(const Shape& shape, DType dtype) {
    TensorView view(nullptr, dtype, shape);
    memory_.push_back(device_.allocate(std::max<int64_t>(view.num_bytes(), 16)));
    view.data = memory_.back().data();
    return view;
  }
  template <typename V>
  TensorView upload(const Shape& shape, DType dtype, const std::vector<V>& values) {
    const TensorView view = allocate(shape, dtype);
    stream_.copy_to_device(view.data, values.data(), view.num_bytes());
    stream_.synchronize();
    return view;
  }

 private:
  TensorView random(const Shape& shape, DType dtype, uint64_t seed, float stddev) {
    const TensorView view = allocate(shape, dtype);
    device_.fill_random(stream_, view, seed, stddev);
    return view;
  }

  Device& device_;
  Stream& stream_;
  KernelArgs args_;
  std::vector<uint8_t> used_slots_;
  std::vector<Memory> memory_;
};

}  // namespace encore::bench
