// Full recordings that are made when a size is first asked for (--decode-ladder lru:N).
#pragma once

#include <list>

#include "runtime/dispatch.h"
#include "runtime/recordings.h"

namespace encore::runtime {

// Keeps at most `capacity` full recordings, each with its halves where token masks needed them: the
// one used longest ago makes room for the next.
// Threads: one. Lifetime: refers to the recordings and their stream.
class OnDemandRecordings {
 public:
  OnDemandRecordings(Recordings& recordings, Stream& stream, int capacity)
      : recordings_(recordings), stream_(stream), capacity_(capacity) {}

  [[nodiscard]] int capacity() const { return capacity_; }
  // Records a full step unless that is done. By policy, a failure ends the start-up, or such steps
  // run eager from now on. REQUIRES: its size is lowered and warm.
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
