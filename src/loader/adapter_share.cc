#include "loader/adapter_share.h"

#include "base/error.h"

namespace encore::loader {
namespace {

constexpr float kRandomStddev = 0.02F;

}  // namespace

AdapterShare::AdapterShare(const ir::Graph& graph, const std::vector<TensorView>& weights,
                           model::LoraSizes sizes, Device& device)
    : layout_(graph, weights, std::move(sizes)), device_(device) {
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    if (!graph.value(id).recipe.has_slots) continue;
    slotted_.push_back(weights[id.index]);
    bytes_ += slotted_.back().num_bytes();
  }
}

template <typename Work>
void AdapterShare::enqueue(const Work& work) {
  const std::shared_lock writes(closing_);
  if (is_closed_) fail(ErrorKind::kDevice, "the rank whose slot is to be filled has ended");
  std::unique_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_streams_.empty()) {
      stream = std::move(idle_streams_.back());
      idle_streams_.pop_back();
    }
  }
  if (!stream) stream = device_.create_stream();
  work(*stream);
  stream->synchronize();
  const std::lock_guard lock(mutex_);
  idle_streams_.push_back(std::move(stream));
}

void AdapterShare::write(const std::byte* image, int64_t slot) {
  enqueue([&](Stream& stream) { layout_.copy(image, slot, stream); });
}

void AdapterShare::write_random(int64_t slot) {
  enqueue([&](Stream& stream) {
    uint64_t seed = static_cast<uint64_t>(slot) + 1;
    for (const TensorView& all : slotted_) {
      const TensorView one(all.as<std::byte>() + slot * all.row_stride * size_of(all.dtype),
                           all.dtype, {all.shape[1], all.shape[2]});
      device_.fill_random(stream, one, seed, kRandomStddev);
      seed += static_cast<uint64_t>(layout_.num_slots());
    }
  });
}

void AdapterShare::close() {
  const std::unique_lock writes(closing_);
  is_closed_ = true;
  idle_streams_.clear();
}

}  // namespace encore::loader
