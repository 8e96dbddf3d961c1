// Decides whether a sequence may start that needs more than a row of a step and pages: its adapter
// must lie in an adapter slot.
#pragma once

namespace encore::sched {

struct Sequence;

// Is asked by the scheduler before it admits a sequence. Threads: the scheduler's.
class AdmissionGate {
 public:
  virtual ~AdmissionGate() = default;
  // Returns whether the sequence may start. The scheduler asks in the order of the queue whenever
  // it has room for a sequence. A sequence that may not start lets those behind it in the queue
  // pass.
  virtual bool admits(const Sequence& sequence) = 0;
  // Says that the sequence lost its pages. The scheduler will call admits() for it again.
  virtual void preempted(const Sequence& sequence) = 0;
};

}  // namespace encore::sched
