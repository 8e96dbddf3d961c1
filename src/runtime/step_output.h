// The output of steps: their tokens, which the host waits for without asking the device.
#pragma once

#include <cstdint>

#include "runtime/dispatch.h"
#include "runtime/loaded_program.h"
#include "runtime/step_waiter.h"
#include "runtime/token_ring.h"

namespace encore::runtime {

// Throws an error of the device's, naming the step it came in, and the remedy.
[[noreturn]] void fail_in_step(const Choice& choice, const Error& error);

// Does some work of a step. Errors: the work's; the device's as above.
template <typename Work>
void in_step(const Choice& choice, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    fail_in_step(choice, error);
  }
}

// A launched step whose tokens the host wants.
struct AwaitedStep {
  StepNumber number = 0;
  Choice choice;  // the step's, not that of one begun since: how long such steps take
  StepWaiter::Clock::time_point launched;  // no step that is waited for begins before
  int64_t num_steps = 1;                   // since the one awaited before
  bool is_last = false;                    // none is launched behind it
  const Event* end = nullptr;              // behind the work that should publish it; null: it will
};

// Threads: one. Lifetime: refers to the program.
class StepOutput {
 public:
  explicit StepOutput(LoadedProgram& loaded) : loaded_(loaded), ring_(loaded.persistent) {}

  [[nodiscard]] TokenRing& ring() { return ring_; }
  // Waits until the step's tokens are in the ring, or the work before its `end` has run without it.
  // Returns the first step that is not published. Errors: kDevice when work failed instead.
  StepNumber wait_published(const AwaitedStep& step);
  // The number of steps like that one that are published in `time`, as far as is known: 1 at least.
  [[nodiscard]] int64_t steps_in(const Choice& choice, StepWaiter::Clock::duration time) const {
    return waiter_.steps_in(kind(choice), time);
  }
  // The time to launch the step behind the only one that the device has, which is of that choice.
  [[nodiscard]] StepWaiter::Clock::time_point launch_time(const Choice& choice,
                                                          StepWaiter::Clock::time_point launched,
                                                          StepWaiter::Clock::duration host) const {
    return waiter_.launch_time(kind(choice), launched, host);
  }

 private:
  // A key that is the same for steps that take about the same time.
  static int64_t kind(const Choice& choice) {
    const StepKey& key = choice.key;
    return key.q ? (key.sequences << 8) + *key.q : -(key.tokens << 8) - key.drafts;
  }

  LoadedProgram& loaded_;
  TokenRing ring_;
  StepWaiter waiter_;
};

}  // namespace encore::runtime
