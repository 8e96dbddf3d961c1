#include "runtime/on_demand.h"

#include "base/error.h"
#include "base/log.h"

namespace encore::runtime {

void OnDemandRecordings::require(const StepKey& step) {
  recent_.remove(step);
  if (recordings_.full(step) == nullptr) {
    if (std::ssize(recent_) == capacity_) {
      stream_.synchronize();  // the recording to erase may be running
      recordings_.erase_full(recent_.back());
      recent_.pop_back();
    }
    recordings_.record_full(step);
  }
  recent_.push_front(step);
}

void OnDemandRecordings::require(const StepKey& step, Coverage& coverage) {
  try {
    require(step);
  } catch (const Error& error) {
    log::warning("{}; its steps run eager", error.what());
    coverage.dropped_full.insert(step);
  }
}

}  // namespace encore::runtime
