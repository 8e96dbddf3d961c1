#pragma once

#include "sched/scheduler.h"

namespace encore::sched::testing {

// Launches and collects a step with this plan, as an engine without overlap does. Each sequence
// gets the token 7.
inline void run_step(Scheduler& scheduler, const Plan& plan) {
  scheduler.commit(plan);
  scheduler.for_each(
      plan, [](const ScheduledTokens& row, Sequence& sequence) { (void)sequence.collect(row, 7); });
}

}  // namespace encore::sched::testing
