// Sleep and wake: device memory given back between steps, and the same memory taken again.
#include "engine/engine.h"

namespace encore::engine {

void LoadedModel::sleep(SleepDepth depth, std::vector<int32_t> pages_in_use) {
  runtime::KvMemory& kv = executor_->loaded().kv;
  executor_->synchronize();
  if (!asleep()) {
    try {
      StagedCopy copy(executor_->device());
      saved_ = kv.save(copy, std::move(pages_in_use));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kMemory) throw;
      fail(ErrorKind::kMemory,
           "cannot sleep: {}; the model stays awake: end some sequences or free host memory, and "
           "let it sleep again",
           error.what());
    }
    kv.unmap();
  }
  if (depth == SleepDepth::kKvAndWeights) weights_->release();
}

void LoadedModel::wake() {
  if (!asleep()) return;
  const int64_t needed = executor_->loaded().kv.bytes_for(num_pages_) +
                         (weights_->is_mapped() ? 0 : weights_->bytes());
  try {
    take_memory_back();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kMemory) throw;
    fail(ErrorKind::kMemory,
         "cannot wake: {:.2f} GB are needed and {:.2f} GB of the device are free ({}); the model "
         "stays asleep: end what took the memory, and wake it again",
         static_cast<double>(needed) * 1e-9,
         static_cast<double>(executor_->device().info().free_bytes) * 1e-9, error.what());
  }
  saved_.reset();
}

// All memory before any content, so that what fails for lack of it fails at once.
void LoadedModel::take_memory_back() {
  runtime::KvMemory& kv = executor_->loaded().kv;
  const bool with_weights = !weights_->is_mapped();
  try {
    StagedCopy copy(executor_->device());
    if (with_weights) weights_->map();
    kv.map(num_pages_);
    if (with_weights) weights_->fill(copy);
    kv.restore(copy, *saved_);
  } catch (...) {
    kv.unmap();
    if (with_weights) weights_->release();
    throw;
  }
}

void Engine::sleep(SleepDepth depth) {
  interrupt_burst();
  while (!in_flight_.empty())
    collect();
  device_rests_since_.reset();
  model_.sleep(depth, scheduler_.pages_in_use());
  if (cache_) cache_->forget_idle();
}

}  // namespace encore::engine
