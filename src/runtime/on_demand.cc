#include "runtime/on_demand.h"

#include "base/error.h"

namespace encore::runtime {

void OnDemandRecordings::require(const StepShape& step) {
  const StepKey key = key_of(step);
  recent_.remove(key);
  if (recordings_.full(key) == nullptr) {
    if (std::ssize(recent_) == capacity_) {
      stream_.synchronize();  // the recording to erase may be running
      recordings_.erase_full(recent_.back());
      recent_.pop_back();
    }
    recordings_.record_full(step);
  }
  recent_.push_front(key);
}

}  // namespace encore::runtime
