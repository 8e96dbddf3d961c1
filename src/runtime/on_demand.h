// Makes full recordings when a step first needs their size (--decode-ladder lru:N).
#pragma once

#include <list>

#include "runtime/dispatch.h"
#include "runtime/recordings.h"

namespace encore::runtime {

// Keeps at most `capacity` full recordings, and their halves where token masks needed those. The
// recording used longest ago makes room for the next. Threads: one. Lifetime: refers to the
// recordings and their stream.
class OnDemandRecordings {
 public:
  OnDemandRecordings(Recordings& recordings, Stream& stream, int capacity)
      : recordings_(recordings), stream_(stream), capacity_(capacity) {}

  [[nodiscard]] int capacity() const { return capacity_; }
  // Records a full step unless it is recorded already. A failure throws with
  // RecordingErrors::kStop. With kDrop, the step is added to `coverage.dropped_full`, so such steps
  // run in another mode from now on. REQUIRES: the kernels of this size are lowered and warmed up.
  void require(const StepKey& step, RecordingErrors policy, Coverage& coverage) {
    recent_.remove(step);
    if (recordings_.full(step) == nullptr) {
      if (std::ssize(recent_) == capacity_) {
        stream_.synchronize();  // the recording to erase may be running
        recordings_.erase_full(recent_.back());
        recent_.pop_back();
      }
      if (!record_or_drop(policy, [&] { recordings_.record_full(step); })) {
        coverage.dropped_full.insert(step);
        return;
      }
    }
    recent_.push_front(step);
  }

 private:
  Recordings& recordings_;
  Stream& stream_;
  int capacity_;
  std::list<StepKey> recent_;  // latest first
};

}  // namespace encore::runtime
