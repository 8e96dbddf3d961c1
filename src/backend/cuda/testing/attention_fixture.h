// A fixture for tests of decode attention. It makes batches over shuffled pages, and the operands
// of the fused op.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/testing/cuda_fixture.h"
#include "base/rounding.h"

namespace encore {

struct Heads {
  int64_t query;
  int64_t kv;
  int64_t size;
};

inline constexpr int64_t kPageSize = 32;
inline constexpr int64_t kMaxLen = 131072;

class AttentionCudaTest : public CudaTest {
 protected:
  TensorView integers(const Shape& shape, const std::vector<int32_t>& values) {
    const TensorView view = allocate(shape, DType::kI32);
    stream_->copy_to_device(view.data, values.data(), view.num_bytes());
    stream_->synchronize();
    return view;
  }

  // Returns the operands of a batch whose sequences own pages for `room` tokens each. The caller
  // sets their kv_lens.
  KernelArgs attention_args(const Heads& heads, int q, const std::vector<int64_t>& room) {
    const auto batch = static_cast<int64_t>(room.size());
    const int64_t width = max_len_ / kPageSize;
    const int64_t num_pages =
        std::accumulate(room.begin(), room.end(), int64_t{0},
                        [](int64_t sum, int64_t r) { return sum + div_up(r, kPageSize); });
    std::vector<int32_t> pages(static_cast<size_t>(num_pages));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(7));
    std::vector<int32_t> table(static_cast<size_t>(batch * width));
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i * kPageSize < room[static_cast<size_t>(b)]; ++i) {
        table[static_cast<size_t>(b * width + i)] = pages.back();
        pages.pop_back();
      }
    }
    const Shape cache{num_pages, heads.kv, kPageSize, heads.size};
    const Shape rows{batch * q, heads.query * heads.size};
    KernelArgs args;
    args.inputs = {{"q", random(rows, DType::kBF16, 1)},
                   {"k_cache", random(cache, kv_dtype_, 2)},
                   {"v_cache", random(cache, kv_dtype_, 3)},
                   {"page_table", integers({batch, width}, table)},
                   {"kv_lens", allocate({batch}, DType::kI32)},
                   {"query_starts", allocate({batch + 1}, DType::kI32)}};
    args.outputs = {{"o", allocate(rows, DType::kBF16)}};
    args.attrs.set("scale", 1.0 / std::sqrt(static_cast<double>(heads.size)));
    args.step = StepKey::uniform(batch, q);
    return args;
  }
  void set_lengths(const KernelArgs& args, const std::vector<int64_t>& lengths) {
    const std::vector<int32_t> values(lengths.begin(), lengths.end());
    const TensorView& kv_lens = args.inputs["kv_lens"];
    stream_->copy_to_device(kv_lens.data, values.data(), kv_lens.num_bytes());
  }
  // Returns the places (slots) in the KV cache that the page table gives the last q tokens of each
  // sequence, or -1 where it gives none.
  std::vector<int32_t> new_slots(const KernelArgs& args, const std::vector<int64_t>& lengths) {
    const TensorView& pages = args.inputs["page_table"];
    std::vector<int32_t> table(static_cast<size_t>(pages.shape.num_elements()));
    stream_->copy_to_host(table.data(), pages.data, pages.num_bytes());
    stream_->synchronize();
    std::vector<int32_t> slots;
    for (size_t b = 0; b < lengths.size(); ++b) {
      for (int64_t key = lengths[b] - *args.step.q; key < lengths[b]; ++key) {
        const size_t entry = b * (max_len_ / kPageSize) + static_cast<size_t>(key / kPageSize);
        slots.push_back(key < 0 ? -1
                                : static_cast<int32_t>(table[entry] * kPageSize + key % kPageSize));
      }
    }
    return slots;
  }
  // Returns the operands of the fused op for the same batch. Its q, k and v are the step's tokens
  // before norms and rotation, as a projection gives them.
  KernelArgs fused_args(const Heads& heads, const KernelArgs& attention,
                        const std::vector<int64_t>& lengths, uint64_t seed, bool with_norms) {
    const std::vector<int32_t> slots = new_slots(attention, lengths);
    const auto tokens = static_cast<int64_t>(slots.size());
    std::vector<int32_t> positions;
    for (const int64_t length : lengths) {
      for (int64_t key = length - *attention.step.q; key < length; ++key)
        positions.push_back(static_cast<int32_t>(std::max<int64_t>(key, 0)));
    }
    const Shape row{tokens, heads.kv * heads.size};
    const Views& in = attention.inputs;
    KernelArgs args = attention;
    args.inputs["q"] = random(in["q"].shape, DType::kBF16, seed);
    args.inputs.add("k", random(row, DType::kBF16, seed + 1));
    args.inputs.add("v", random(row, DType::kBF16, seed + 2));
    args.inputs.add("positions", integers({tokens}, positions));
    args.inputs.add("inv_freq", random({heads.size / 2}, DType::kF32, 7));
    args.inputs.add("slots", integers({tokens}, slots));
    if (with_norms) {
      args.inputs.add("q_norm", random({heads.size}, DType::kBF16, 8));
      args.inputs.add("k_norm", random({heads.size}, DType::kBF16, 9));
      args.attrs.set("eps", 1e-6);
    }
    args.outputs = {{"o", allocate(in["q"].shape, DType::kBF16)},
                    {"k_cache", in["k_cache"]},
                    {"v_cache", in["v_cache"]}};
    return args;
  }
  void launch(const BoundLaunch& bound) {
    stream_->launch({.label = "attention", .id = -1, .after = {}}, bound, {});
  }
  // Runs the launch by itself: everything else has ended before it starts.
  std::vector<uint16_t> run(const KernelArgs& args, const BoundLaunch& bound) {
    stream_->fill(args.outputs["o"].data, 0x7fc07fc0U, args.outputs["o"].num_bytes());
    stream_->synchronize();
    launch(bound);
    return read_bits(args.outputs["o"]);
  }

  // The length of the longest sequence that fits a row of the page table. Where it is at most 8192
  // and sequences are few, a cluster of blocks takes each kv head.
  int64_t max_len_ = kMaxLen;
  DType kv_dtype_ = DType::kBF16;
};

struct Case {
  Heads heads;
  int q;
  DType kv_dtype = DType::kBF16;

  [[nodiscard]] std::string text() const {
    return "heads " + std::to_string(heads.query) + "/" + std::to_string(heads.kv) + " of " +
           std::to_string(heads.size) + ", q " + std::to_string(q) + ", KV " +
           std::string(name(kv_dtype));
  }
};

}  // namespace encore
