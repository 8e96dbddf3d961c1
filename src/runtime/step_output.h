// Waits for the tokens that steps publish. The host polls memory for them and does not call the
// driver to wait.
#pragma once

#include <cstdint>

#include "runtime/dispatch.h"
#include "runtime/loaded_program.h"
#include "runtime/step_waiter.h"
#include "runtime/token_ring.h"

namespace encore::runtime {

// Throws `error`, a device error, with a message that names the step in which it came and the
// remedy.
[[noreturn]] void fail_in_step(const Choice& choice, const Error& error);

// Runs `work`, which is part of a step. Errors: those of `work`; a device error is thrown by
// fail_in_step().
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
  Choice choice;                           // of this step; says how long such steps take
  StepWaiter::Clock::time_point launched;  // when the first of the `num_steps` was launched
  int64_t num_steps = 1;                   // steps since the step awaited before this one
  bool is_last = false;                    // no step is launched behind it
  const Event* end = nullptr;              // set after the work that publishes; null: not needed
};

// Waits for the tokens of a program's steps. Threads: one. Lifetime: refers to the program.
class StepOutput {
 public:
  explicit StepOutput(LoadedProgram& loaded) : loaded_(loaded), ring_(loaded.persistent) {}

  [[nodiscard]] TokenRing& ring() { return ring_; }
  // Waits until the step's tokens are in the ring, or until the work before `step.end` has run
  // without publishing them. Returns the first step that is not published. Errors: kDevice when the
  // work failed.
  StepNumber wait_published(const AwaitedStep& step);
  // Returns the number of steps of the kind of `choice` that are expected to be published in
  // `time`, at least 1.
  [[nodiscard]] int64_t steps_in(const Choice& choice, StepWaiter::Clock::duration time) const {
    return waiter_.steps_in(kind(choice), time);
  }
  // Returns the time at which to launch the next step, where the only step in flight was launched
  // with `choice` (StepWaiter::launch_time).
  [[nodiscard]] StepWaiter::Clock::time_point launch_time(const Choice& choice,
                                                          StepWaiter::Clock::time_point launched,
                                                          StepWaiter::Clock::duration host) const {
    return waiter_.launch_time(kind(choice), launched, host);
  }

 private:
  // Returns a key that is the same for steps which take about the same time.
  static int64_t kind(const Choice& choice) {
    const StepKey& key = choice.key;
    return key.q ? (key.sequences << 8) + *key.q : -(key.tokens << 8) - key.drafts;
  }

  LoadedProgram& loaded_;
  TokenRing ring_;
  StepWaiter waiter_;
};

}  // namespace encore::runtime
