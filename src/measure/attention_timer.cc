#include "measure/attention_timer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "backend/expand.h"
#include "backend/replay_time.h"
#include "base/rounding.h"
#include "measure/timing.h"

namespace encore::measure {

AttentionTimer::AttentionTimer(const AttentionShape& shape, Device& device,
                               const std::vector<AttentionCase>& cases)
    : shape_(shape), device_(device), stream_(device.create_stream()) {
  int64_t most_bytes = 0;
  int64_t most_sequences = 0;
  for (const AttentionCase& c : cases) {
    most_bytes = std::max(most_bytes, num_copies(c) * copy_bytes(c));
    most_sequences = std::max(most_sequences, static_cast<int64_t>(c.lengths.size()));
  }
  kv_ = device.allocate(most_bytes);
  const int64_t row_bytes = shape.head_dim * size_of(shape_.dtype);
  const int64_t rows = most_sequences * shape.query_tokens;
  qkv_ = device.allocate(rows * (shape.heads + 2 * shape.kv_heads) * row_bytes);
  out_ = device.allocate(rows * shape.heads * row_bytes);
  const auto fill = [&](const Memory& memory, DType dtype) {
    const TensorView all(memory.data(), dtype, {memory.bytes() / size_of(dtype)});
    device.fill_random(*stream_, all, 1, 1.0F);
  };
  fill(kv_, shape_.kv_dtype);
  fill(qkv_, shape_.dtype);
  stream_->synchronize();
}

AttentionTiming AttentionTimer::time(const AttentionCase& c, int runs) {
  runs_ = runs;
  upload(c);
  const auto expanded = [&](const KernelArgs& on) {
    return expand(device_.kernels(), shape_.rope ? "fused_attention" : "attention", on);
  };
  const std::vector<OpLaunch> parts = expanded(kernel_args(c, 0));
  const Workspace workspace = total_workspace(parts);
  scratch_ = device_.allocate(std::max<int64_t>(workspace.scratch_bytes, 16));
  counters_ = device_.allocate(std::max<int64_t>(workspace.num_counters, 4) * 4);
  stream_->fill(counters_.data(), 0, counters_.bytes());
  std::vector<BoundLaunch> launches;
  for (int64_t copy = 0; copy < num_copies(c); ++copy)
    launches.push_back(bind_all(device_, expanded(kernel_args(c, copy))));
  stream_->synchronize();

  const double fills = replay_us(launches, {.fill = true, .launch = false});
  const double apart = replay_us(launches, {.fill = true, .launch = true});
  return {.kernel = std::string(parts.back().kernel->name),
          .kv_bytes = kv_bytes(c),
          .chain_us = replay_us(launches, {.fill = false, .launch = true}),
          .alone_us = apart - fills};
}

int64_t AttentionTimer::num_pages(int64_t length) const {
  return div_up(length, shape_.page_size);
}
int64_t AttentionTimer::num_pages(const AttentionCase& c) const {
  int64_t pages = 1;
  for (const int64_t length : c.lengths)
    pages += num_pages(length);
  return pages;
}
// Returns the bytes of K in a page. V has as many.
int64_t AttentionTimer::page_bytes() const {
  return shape_.kv_heads * shape_.page_size * shape_.head_dim * size_of(shape_.kv_dtype);
}
int64_t AttentionTimer::copy_bytes(const AttentionCase& c) const {
  return 2 * num_pages(c) * page_bytes();
}
int64_t AttentionTimer::num_copies(const AttentionCase& c) const {
  return measure::num_copies(shape_.rotation_mb, copy_bytes(c));
}
double AttentionTimer::kv_bytes(const AttentionCase& c) const {
  int64_t tokens = 0;
  for (const int64_t length : c.lengths) {
    // The new tokens are consecutive, so the union of their windows reaches from the start of the
    // first token's window to the end of the last one's.
    const int64_t seen = shape_.window ? *shape_.window + shape_.query_tokens - 1 : length;
    tokens += std::min(length, seen);
  }
  return 2.0 * static_cast<double>(tokens * shape_.kv_heads * shape_.head_dim) *
         static_cast<double>(size_of(shape_.kv_dtype));
}
StepKey AttentionTimer::step_key(const AttentionCase& c) const {
  return StepKey::uniform(std::ssize(c.lengths), shape_.query_tokens);
}

AttentionTimer::Inputs AttentionTimer::inputs(const AttentionCase& c) const {
  const auto batch = static_cast<int64_t>(c.lengths.size());
  Inputs in;
  const auto take = [&](int64_t count) {
    const int64_t offset = in.count;
    in.count += round_up(count, 4);
    return offset;
  };
  in.page_table = take(batch * num_pages(shape_.max_context));
  in.kv_lens = take(batch);
  in.query_starts = take(batch + 1);
  in.positions = take(batch * shape_.query_tokens);
  in.slots = take(batch * shape_.query_tokens);
  in.inv_freq = take(shape_.head_dim / 2);
  return in;
}
void AttentionTimer::upload(const AttentionCase& c) {
  const Inputs in = inputs(c);
  const auto batch = static_cast<int64_t>(c.lengths.size());
  const int64_t width = num_pages(shape_.max_context);
  std::vector<int32_t> pages(static_cast<size_t>(num_pages(c)));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(1));
  std::vector<int32_t> host(static_cast<size_t>(in.count));
  const int64_t page_size = shape_.page_size;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = c.lengths[static_cast<size_t>(b)];
    int32_t* row = host.data() + in.page_table + b * width;
    for (int64_t i = 0; i < num_pages(length); ++i) {
      row[i] = pages.back();
      pages.pop_back();
    }
    host[static_cast<size_t>(in.kv_lens + b)] = static_cast<int32_t>(length);
    for (int64_t t = 0; t < shape_.query_tokens; ++t) {
      const int64_t token = b * shape_.query_tokens + t;
      const int64_t key = length - shape_.query_tokens + t;
      host[static_cast<size_t>(in.positions + token)] =
          static_cast<int32_t>(std::max<int64_t>(key, 0));
      host[static_cast<size_t>(in.slots + token)] =
          key < 0 ? -1 : static_cast<int32_t>(row[key / page_size] * page_size + key % page_size);
    }
  }
  for (int64_t b = 0; b <= batch; ++b) {
    host[static_cast<size_t>(in.query_starts + b)] = static_cast<int32_t>(b * shape_.query_tokens);
  }
  for (int64_t i = 0; i < shape_.head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(shape_.head_dim);
    host[static_cast<size_t>(in.inv_freq + i)] =
        std::bit_cast<int32_t>(static_cast<float>(std::pow(10000.0, exponent)));
  }
  inputs_ = device_.allocate(static_cast<int64_t>(host.size()) * 4);
  stream_->copy_to_device(inputs_.data(), host.data(), inputs_.bytes());
  stream_->synchronize();
}

KernelArgs AttentionTimer::kernel_args(const AttentionCase& c, int64_t copy) const {
  const auto batch = static_cast<int64_t>(c.lengths.size());
  const int64_t width = num_pages(shape_.max_context);
  const int64_t num_tokens = batch * shape_.query_tokens;
  const Inputs in = inputs(c);
  const Shape cache{num_pages(c), shape_.kv_heads, shape_.page_size, shape_.head_dim};
  const auto input = [&](int64_t offset, DType dtype, const Shape& shape) {
    return TensorView(inputs_.data() + offset * 4, dtype, shape);
  };
  // Queries, keys and values lie side by side in one row, as one merged projection writes them.
  int64_t column = 0;
  const auto columns = [&](int64_t heads) {
    TensorView view(qkv_.data() + column * size_of(shape_.dtype), shape_.dtype,
                    {num_tokens, heads * shape_.head_dim});
    view.row_stride = (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim;
    column += heads * shape_.head_dim;
    return view;
  };
  std::byte* k_data = kv_.data() + copy * copy_bytes(c);
  const TensorView k_cache(k_data, shape_.kv_dtype, cache);
  const TensorView v_cache(k_data + copy_bytes(c) / 2, shape_.kv_dtype, cache);
  KernelArgs args;
  args.inputs.add("q", columns(shape_.heads));
  args.outputs.add(
      "o", TensorView(out_.data(), shape_.dtype, {num_tokens, shape_.heads * shape_.head_dim}));
  if (shape_.rope) {
    args.inputs.add("k", columns(shape_.kv_heads));
    args.inputs.add("v", columns(shape_.kv_heads));
    args.inputs.add("positions", input(in.positions, DType::kI32, {num_tokens}));
    args.inputs.add("inv_freq", input(in.inv_freq, DType::kF32, {shape_.head_dim / 2}));
    args.inputs.add("slots", input(in.slots, DType::kI32, {num_tokens}));
    args.outputs.add("k_cache", k_cache);
    args.outputs.add("v_cache", v_cache);
  }
  args.inputs.add("k_cache", k_cache);
  args.inputs.add("v_cache", v_cache);
  args.inputs.add("page_table", input(in.page_table, DType::kI32, {batch, width}));
  args.inputs.add("kv_lens", input(in.kv_lens, DType::kI32, {batch}));
  args.inputs.add("query_starts", input(in.query_starts, DType::kI32, {batch + 1}));
  args.attrs.set("scale", 1.0 / std::sqrt(static_cast<double>(shape_.head_dim)));
  if (shape_.window) args.attrs.set("window", *shape_.window);
  args.step = step_key(c);
  args.scratch = scratch_.data();
  args.counters = reinterpret_cast<uint32_t*>(counters_.data());
  return args;
}

double AttentionTimer::replay_us(const std::vector<BoundLaunch>& launches, Recorded recorded) {
  const bool on_cpu = device_.kind() == DeviceKind::kCpu;
  const size_t count = on_cpu ? launches.size() : std::max<size_t>(launches.size(), 8);
  RecordingScope scope(*stream_);
  for (size_t i = 0; i < count; ++i) {
    if (recorded.fill) stream_->fill(out_.data(), 0, 4);
    if (recorded.launch) {
      const LaunchAttributes attributes{.label = "attention", .id = -1, .after = {}};
      stream_->launch(attributes, launches[i % launches.size()], {});
    }
  }
  const auto recording = scope.finish();
  return median_replay_us(device_, *stream_, *recording, runs_) / static_cast<double>(count);
}

}  // namespace encore::measure
