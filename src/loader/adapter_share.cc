#include "loader/adapter_share.h"

#include "base/error.h"

namespace encore::loader {
namespace {

constexpr float kRandomStddev = 0.02F;
// The number of threads that copy an adapter. One thread copies an adapter of 84 MB in 8 ms, and
// leaves the other processors to the steps.
constexpr int kCopyThreads = 1;

}  // namespace

AdapterShare::AdapterShare(const ir::Graph& graph, const std::vector<TensorView>& weights,
                           model::LoraSizes sizes, Device& device)
    : layout_(graph, weights, std::move(sizes)),
      device_(device),
      copy_(std::make_unique<StagedCopy>(device, kCopyThreads)) {
  copy_->pin();
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    if (!graph.value(id).recipe.has_slots) continue;
    slotted_.push_back(weights[id.index]);
    bytes_ += slotted_.back().num_bytes();
  }
}

template <typename Work>
void AdapterShare::enqueue(const Work& work) {
  const std::lock_guard lock(mutex_);
  if (!copy_) fail(ErrorKind::kDevice, "the rank whose slot is to be filled has ended");
  work(*copy_);
  copy_->finish();
}

void AdapterShare::write(const std::byte* image, int64_t slot) {
  enqueue([&](StagedCopy& copy) { layout_.copy(image, slot, copy); });
}

void AdapterShare::write_random(int64_t slot) {
  enqueue([&](StagedCopy& copy) {
    uint64_t seed = static_cast<uint64_t>(slot) + 1;
    for (const TensorView& all : slotted_) {
      const TensorView one(all.as<std::byte>() + slot * all.row_stride * size_of(all.dtype),
                           all.dtype, {all.shape[1], all.shape[2]});
      device_.fill_random(copy.stream(), one, seed, kRandomStddev);
      seed += static_cast<uint64_t>(layout_.num_slots());
    }
  });
}

void AdapterShare::close() {
  const std::lock_guard lock(mutex_);
  copy_.reset();
}

}  // namespace encore::loader
