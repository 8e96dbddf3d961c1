// Kernels of all_reduce (alone or with a norm behind it), all_gather and gather_logits. Every
// rank's thread runs its own launch, gives its data to the communicator, and reads the data of all
// ranks. A device without other ranks copies.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "backend/advance.h"
#include "backend/cpu/device.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "backend/cpu/stream.h"
#include "backend/sampling.h"

namespace encore::cpu {
namespace {

using Bytes = Communicator::Bytes;

int64_t row_size(const TensorView& rows) {
  return rows.row_elements() * size_of(rows.dtype);
}

// Computes row r of the outputs of rank `own` from row r of x of all ranks. `all` has x of each
// rank in the order of the ranks.
using Combine = void (*)(std::span<const Bytes> all, int own, int64_t r, const KernelArgs& args);

void add_rows(std::span<const Bytes> all, int64_t r, const TensorView& x, const TensorView& y) {
  constexpr int64_t kChunk = 512;  // elements widened at a time
  std::array<float, kChunk> sum;
  std::array<float, kChunk> next;
  const int64_t n = x.row_elements();
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    const auto load = [&](Bytes bytes, float* to) {
      simd().load(bytes.data() + (r * n + begin) * size_of(x.dtype), x.dtype, count, to);
    };
    load(all[0], sum.data());
    for (const Bytes& bytes : all.subspan(1)) {
      load(bytes, next.data());
      for (int64_t i = 0; i < count; ++i)
        sum[static_cast<size_t>(i)] += next[static_cast<size_t>(i)];
    }
    simd().store(sum.data(), count, y.dtype, row_bytes(y, r, begin));
  }
}

// Computes the sum, the addition of the residual and the norm. Each result is rounded as if an op
// of its own had computed it.
void add_and_normalize_row(std::span<const Bytes> all, int /*own*/, int64_t r,
                           const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& residual = args.inputs["residual"];
  const TensorView& sum = args.outputs["sum"];
  const TensorView& y = args.outputs["y"];
  const int64_t n = x.row_elements();
  float* const other = thread_buffer(Buffer::kThird, n);
  simd().load(row_bytes(residual, r), residual.dtype, n, other);
  add_rows(all, r, x, sum);
  float* const row = thread_buffer(Buffer::kFirst, n);
  simd().load(row_bytes(sum, r), sum.dtype, n, row);
  for (int64_t i = 0; i < n; ++i)
    row[i] += other[i];
  simd().store(row, n, sum.dtype, row_bytes(sum, r));
  simd().load(row_bytes(sum, r), sum.dtype, n, row);
  const float* wide = widened_weight(args.inputs["weight"], args.attrs, Buffer::kSecond);
  normalize(row, wide, n, static_cast<float>(args.attrs.get_double("eps")));
  simd().store(row, n, y.dtype, row_bytes(y, r));
}

void add_row(std::span<const Bytes> all, int /*own*/, int64_t r, const KernelArgs& args) {
  add_rows(all, r, args.inputs["x"], args.outputs["y"]);
}

void gather_row(std::span<const Bytes> all, int own, int64_t r, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& y = args.outputs["y"];
  const int64_t size = row_size(x);
  const size_t first = args.attrs.find("own_first") == nullptr ? 0 : static_cast<size_t>(own);
  for (size_t i = 0; i < all.size(); ++i) {
    std::memcpy(row_bytes(y, r, static_cast<int64_t>(i) * x.row_elements()),
                all[(first + i) % all.size()].data() + r * size, static_cast<size_t>(size));
  }
}

// Gathers the columns of all ranks for the rows whose choice needs them. For all other rows, it
// copies the rank's own columns.
void meet_for_logits(CpuDevice& device, const std::string& what, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& logits = args.outputs["logits"];
  const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
  const auto* const kv_lens = args.inputs["kv_lens"].as<int32_t>();
  const int64_t size = row_size(x);
  const int64_t rows_each = x.num_rows() / std::max<int64_t>(1, args.inputs["sampling"].num_rows());
  std::vector<int64_t> needed;
  for (int64_t r = 0; r < x.num_rows(); ++r) {
    if (sampling[r / rows_each].needs_all_logits(kv_lens[r], logits.row_elements()))
      needed.push_back(r);
    std::memcpy(row_bytes(logits, r, device.rank().index * x.row_elements()), row_bytes(x, r),
                static_cast<size_t>(size));
  }
  const auto communicator = device.communicator();
  if (communicator == nullptr) return;
  const auto write = [&](std::byte* to) {
    for (const int64_t r : needed) {
      std::memcpy(to, row_bytes(x, r), static_cast<size_t>(size));
      to += size;
    }
  };
  const auto read = [&](std::span<const Bytes> all) {
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const std::byte* from = all[rank].data();
      for (const int64_t r : needed) {
        std::memcpy(row_bytes(logits, r, static_cast<int64_t>(rank) * x.row_elements()), from,
                    static_cast<size_t>(size));
        from += size;
      }
    }
  };
  communicator->exchange(device.rank().index, what, std::ssize(needed) * size, write, read);
  device.beat();
}

void meet(CpuDevice& device, const std::string& what, const KernelArgs& args, Combine combine) {
  const TensorView& x = args.inputs["x"];
  const int64_t size = row_size(x);
  const int64_t num_rows = x.num_rows();
  // Each rank writes, behind its rows of data, the step up to which a burst runs. All ranks use the
  // step that rank 0 wrote.
  const TensorView* const marks = args.inputs.find("ring_marks");
  const int64_t behind_rows = num_rows * size;
  const int64_t bytes = behind_rows + (marks != nullptr ? size_of(DType::kI32) : 0);
  const auto write = [&](std::byte* to) {
    for (int64_t r = 0; r < num_rows; ++r)
      std::memcpy(to + r * size, row_bytes(x, r), static_cast<size_t>(size));
    if (marks == nullptr) return;
    const int32_t run_until = std::atomic_ref(marks->as<int32_t>()[advance_op::kRunUntil])
                                  .load(std::memory_order_relaxed);
    std::memcpy(to + behind_rows, &run_until, sizeof(run_until));
  };
  const auto read = [&](std::span<const Bytes> all) {
    device.pool().parallel_for(num_rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r)
        combine(all, device.rank().index, r, args);
    });
    if (marks == nullptr) return;
    std::memcpy(args.outputs["run_until"].data, all[0].data() + behind_rows, sizeof(int32_t));
  };
  if (const auto communicator = device.communicator()) {
    communicator->exchange(device.rank().index, what, bytes, write, read);
    device.beat();
    return;
  }
  std::vector<std::byte> own(static_cast<size_t>(bytes));
  write(own.data());
  read(std::array{Bytes(own)});
}

template <Combine kCombine>
void meet_and_combine(CpuDevice& device, const std::string& what, const KernelArgs& args) {
  meet(device, what, args, kCombine);
}

template <Literal kName, void (*kMeet)(CpuDevice&, const std::string&, const KernelArgs&)>
BoundLaunch bind_collective(Device& device, const KernelArgs& args) {
  auto* const cpu = &static_cast<CpuDevice&>(device);
  const auto shared = std::make_shared<const KernelArgs>(args);
  const std::string_view kernel = kName.text;
  const std::string what = meeting_text(kernel.substr(0, kernel.find('.')), args);
  return [cpu, shared, what](Stream& stream, const StepLengths&) {
    enqueue(stream, kName.text, [cpu, shared, what] { kMeet(*cpu, what, *shared); });
  };
}

}  // namespace

std::span<const Kernel> collective_kernels() {
  static constexpr std::array kRows = {
      Kernel{.op = "all_reduce",
             .name = "all_reduce.cpu",
             .bind = bind_collective<"all_reduce.cpu", meet_and_combine<add_row>>},
      Kernel{.op = "all_gather",
             .name = "all_gather.cpu",
             .bind = bind_collective<"all_gather.cpu", meet_and_combine<gather_row>>,
             .optional = {"ring_marks"}},
      Kernel{.op = "all_reduce_add_rms_norm",
             .name = "all_reduce_add_rms_norm.cpu",
             .bind = bind_collective<"all_reduce_add_rms_norm.cpu",
                                     meet_and_combine<add_and_normalize_row>>},
      Kernel{.op = "gather_logits",
             .name = "gather_logits.cpu",
             .bind = bind_collective<"gather_logits.cpu", meet_for_logits>},
  };
  return kRows;
}

}  // namespace encore::cpu
