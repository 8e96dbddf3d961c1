// Lets sequences start that need more than a row of a step and pages: an adapter must lie in a slot.
#pragma once

namespace encore::sched {

struct Sequence;

// Threads: the scheduler's.
class AdmissionGate {
 public:
  virtual ~AdmissionGate() = default;
  // May the sequence start? Asked in the order of the queue, whenever there is room for one; the sequences
  // behind one that may not pass it.
  virtual bool admits(const Sequence& sequence) = 0;
  // The sequence lost its pages, and is asked for again.
  virtual void preempted(const Sequence& sequence) = 0;
};

}  // namespace encore::sched
