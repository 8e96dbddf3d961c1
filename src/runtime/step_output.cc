#include "runtime/step_output.h"

namespace encore::runtime {

void fail_in_step(const Choice& choice, const Error& error) {
  const bool is_eager = choice.mode == Mode::kEager;
  fail(error.kind(), "in {} {} step of {} tokens and {} sequences: {}; {}", is_eager ? "an" : "a",
       name(choice.mode), choice.key.tokens, choice.key.sequences, error.what(),
       is_eager
           ? "a kernel failed, not a recording: report this with the output of `encore doctor`"
           : "try --graphs none; if that works, --graphs-debug on checks each recording and its "
             "addresses, and `encore bisect` names the launch");
}

// Polls the ring, because the host has other things to do than to wait in the driver. Also asks the
// driver for errors, since a device that failed publishes nothing.
StepNumber StepOutput::wait_published(const AwaitedStep& step) {
  // Asking the driver takes microseconds, so only one look in kLooksPerCheck does it, and never the
  // first, which comes before the step is due.
  constexpr int kLooksPerCheck = 4;
  int looks = 0;
  bool has_ended = false;
  const auto is_published = [&] { return is_before(step.number, ring_.published()); };
  const StepWaiter::Awaited awaited{kind(step.choice), step.num_steps, step.launched, step.is_last};
  waiter_.wait(awaited, [&] {
    if (is_published() || has_ended) return true;
    if (looks++ == 0 || looks % kLooksPerCheck > 0) return false;
    in_step(step.choice, [&] {
      loaded_.stream.check();
      // A step publishes its tokens before it ends. So after the end, the ring is read once more.
      has_ended = step.end != nullptr && step.end->done();
    });
    return is_published();
  });
  const StepNumber published = ring_.published();
  // In a burst, more steps than the one waited for may have ended. A lone step is followed by one
  // that is waited for separately.
  if (step.end != nullptr && is_before(step.number + 1, published))
    waiter_.pass(awaited.key, published - (step.number + 1));
  return published;
}

}  // namespace encore::runtime
