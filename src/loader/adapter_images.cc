#include "loader/adapter_images.h"

#include <algorithm>

#include "base/error.h"
#include "model/lora/adapter.h"

namespace encore::loader {

AdapterImages::AdapterImages(std::vector<const model::LoraSlots*> slots, int64_t max_images,
                             int64_t max_rank)
    : slots_(std::move(slots)), offsets_{0}, max_images_(max_images), max_rank_(max_rank) {
  for (const model::LoraSlots* rank : slots_)
    offsets_.push_back(offsets_.back() + rank->image_bytes());
}

AdapterImages::Image AdapterImages::get(const Adapter& adapter) {
  std::shared_ptr<Memory> buffer;
  {
    const std::lock_guard lock(mutex_);
    const auto kept = std::ranges::find(kept_, adapter.generation, &Kept::generation);
    if (kept != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, kept);
      return kept->image;
    }
    ++num_reads_;
    buffer = take_buffer();
  }
  if (!buffer) buffer = std::make_shared<Memory>(allocate_pageable(offsets_.back()));
  const std::string digest = read(adapter, buffer->data());
  const std::lock_guard lock(mutex_);
  if (digests_.try_emplace(adapter.generation, digest).first->second != digest) {
    fail(ErrorKind::kModel,
         "{}: changed on disk since the adapter {:?} was loaded: put the old files back, or load "
         "the new ones (load_inplace)",
         adapter.path.string(), adapter.name);
  }
  if (std::ranges::count(kept_, adapter.generation, &Kept::generation) == 0)
    kept_.push_front({adapter.generation, buffer});
  if (std::ssize(kept_) > max_images_) kept_.pop_back();
  return buffer;
}

std::string AdapterImages::digest(const Adapter& adapter) const {
  const std::lock_guard lock(mutex_);
  const auto found = digests_.find(adapter.generation);
  return found == digests_.end() ? "" : found->second;
}

int64_t AdapterImages::num_reads() const {
  const std::lock_guard lock(mutex_);
  return num_reads_;
}

// Checks the headers of the files before it reads their tensors, so a large file takes no memory
// unless it belongs to the adapter.
std::string AdapterImages::read(const Adapter& adapter, std::byte* image) const {
  slots_.front()->check(model::LoraAdapter(adapter.path, max_rank_));
  const model::LoraAdapter files(adapter.path, max_rank_, model::FileAccess::kCopied);
  for (size_t rank = 0; rank < slots_.size(); ++rank)
    slots_[rank]->pack(files, image + offsets_[rank]);
  return files.digest();
}

std::shared_ptr<Memory> AdapterImages::take_buffer() {
  if (std::ssize(kept_) < max_images_) return nullptr;
  const auto idle = std::find_if(kept_.rbegin(), kept_.rend(),
                                 [](const Kept& kept) { return kept.image.use_count() == 1; });
  if (idle == kept_.rend()) return nullptr;
  std::shared_ptr<Memory> buffer = idle->image;
  // An image has one reference in the cache and one for each user. Releasing the cache's reference
  // here, while `buffer` holds another, orders the reads of former users, who have released theirs,
  // before the next write to the image.
  kept_.erase(std::next(idle).base());
  return buffer;
}

}  // namespace encore::loader
