// Times launches with the events of a device, on operands that are not in caches.
#include <algorithm>
#include <optional>

#include "backend/device.h"
#include "backend/tuning.h"
#include "base/rounding.h"

namespace encore {
namespace {

// The copies of the largest input together have about this many times the size of the cache, so
// that none of them is still in the cache when its turn comes again.
constexpr int64_t kRotation = 4;
constexpr int64_t kMostSets = 32;
// Copies of operands keep the remainder of their address by this number, and so their alignment.
constexpr int64_t kCopyAlignment = 256;

// Returns the bytes from the first element of a view to the end of its last element.
int64_t extent(const TensorView& view) {
  const int64_t rows = view.num_rows();
  if (rows == 0) return 0;
  return ((rows - 1) * view.row_stride + view.row_elements()) * size_of(view.dtype);
}

int64_t remainder(const TensorView& view) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data) % kCopyAlignment);
}

// Returns the bytes from one copy of an operand to the next.
int64_t pitch(const TensorView& view) {
  return round_up(extent(view) + kCopyAlignment, kCopyAlignment);
}

class DeviceTimer final : public LaunchTimer {
 public:
  DeviceTimer(Device& device, int64_t cache_bytes) : device_(device), cache_bytes_(cache_bytes) {}

  std::vector<KernelArgs> operands(const KernelArgs& args, const Workspace& workspace) override {
    if (!stream_) stream_ = device_.create_stream();
    stream_->synchronize();  // no launch uses the memory any more; an error while recording
    if (args.inputs.empty()) return {args};  // no inputs, so caches hold none of them
    const auto largest =
        std::max_element(args.inputs.begin(), args.inputs.end(),
                         [](const auto& a, const auto& b) { return extent(a) < extent(b); });
    const int64_t largest_bytes = std::max<int64_t>(extent(*largest), 1);
    const int64_t num_sets =
        std::clamp(div_up(kRotation * cache_bytes_, largest_bytes), int64_t{1}, kMostSets);
    std::vector<KernelArgs> sets(num_sets, args);
    inputs_.resize(std::max(inputs_.size(), args.inputs.size()));
    outputs_.resize(std::max(outputs_.size(), args.outputs.size()));
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const TensorView& view = args.inputs.values()[i];
      // Only the largest input, which is the weights, has a copy for each set of arguments. The
      // other inputs are the same in all sets, since in a step the result of the launch before is
      // in caches anyway.
      const int64_t copies = &view == &*largest ? num_sets : 1;
      fill(inputs_[i], pitch(view) * copies, view.dtype);
      for (int64_t set = 0; set < num_sets; ++set)
        sets[set].inputs.values()[i].data =
            inputs_[i].memory.data() + set % copies * pitch(view) + remainder(view);
    }
    for (size_t i = 0; i < args.outputs.size(); ++i) {
      const TensorView& view = args.outputs.values()[i];
      grow(outputs_[i], pitch(view));
      for (KernelArgs& set : sets)
        set.outputs.values()[i].data = outputs_[i].data() + remainder(view);
    }
    grow(scratch_, workspace.scratch_bytes);
    if (grow(counters_, workspace.num_counters * int64_t{sizeof(uint32_t)}))
      stream_->fill(counters_.data(), 0, counters_.bytes());
    for (KernelArgs& set : sets) {
      set.scratch = scratch_.data();
      set.counters = reinterpret_cast<uint32_t*>(counters_.data());
    }
    return sets;
  }

  double time(std::span<const BoundLaunch> launches) override {
    const auto start = device_.create_event();
    const auto end = device_.create_event();
    for (bool again = false;; again = true) {
      // Fill memory before the timed launches. This clears the caches, and keeps the device busy
      // until all launches are enqueued: a device that waits for the host to enqueue would make the
      // time too long.
      const size_t num_fills = cache_bytes_ > 0 ? 1 + launches.size() / launches_per_fill_ : 0;
      if (num_fills > 0) grow(flush_, cache_bytes_);
      for (size_t i = 0; i < num_fills; ++i)
        stream_->fill(flush_.data(), 0, cache_bytes_);
      stream_->record(*start);
      for (const BoundLaunch& launch : launches)
        stream_->launch({.label = "tuning", .id = -1, .after = {}}, launch, {});
      stream_->record(*end);
      const bool was_busy = !start->done();
      stream_->synchronize();
      if (was_busy || num_fills == 0 || launches_per_fill_ == 1) break;
      // The host may have been slow the first time because it loaded a kernel. If it is slow again,
      // give it more time.
      if (again) launches_per_fill_ /= 2;
    }
    return end->milliseconds_since(*start) * 1000 / static_cast<double>(launches.size());
  }

  void release() override {
    inputs_.clear();
    outputs_.clear();
    scratch_ = Memory();
    counters_ = Memory();
    flush_ = Memory();
    stream_.reset();
  }

 private:
  struct Input {
    Memory memory;
    std::optional<DType> filled_as;
  };

  // Makes the memory large enough. Returns false when it was large enough already.
  bool grow(Memory& memory, int64_t bytes) {
    if (memory.bytes() >= bytes) return false;
    memory = Memory();  // first, so that both need not fit
    memory = device_.allocate(round_up(bytes, kCopyAlignment));
    return true;
  }

  // Fills an input with random numbers, since products of zeros run faster than products of other
  // numbers.
  void fill(Input& input, int64_t bytes, DType dtype) {
    if (!grow(input.memory, bytes) && input.filled_as == dtype) return;
    const int64_t elements = input.memory.bytes() / size_of(dtype);
    device_.fill_random(*stream_, {input.memory.data(), dtype, {elements}}, 1, 1.0F);
    input.filled_as = dtype;
  }

  Device& device_;
  int64_t cache_bytes_;
  // The number of launches that the host is assumed to enqueue while the device clears its caches
  // once, which takes an H200 15 us.
  size_t launches_per_fill_ = 4;
  std::unique_ptr<Stream> stream_;
  std::vector<Input> inputs_;
  std::vector<Memory> outputs_;
  Memory scratch_;
  Memory counters_;
  Memory flush_;
};

}  // namespace

std::unique_ptr<LaunchTimer> create_launch_timer(Device& device, int64_t cache_bytes) {
  return std::make_unique<DeviceTimer>(device, cache_bytes);
}

}  // namespace encore
