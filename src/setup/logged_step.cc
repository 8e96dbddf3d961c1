#include "setup/logged_step.h"

namespace encore::setup {

planning::LoggedStep logged(const engine::MeasuredStep& measured) {
  const runtime::Choice& choice = measured.choice;
  const bool is_uniform = choice.key.is_uniform();
  planning::LoggedStep step;
  int64_t kv_tokens = 0;
  for (const sched::ScheduledTokens& row : measured.plan.rows) {
    const bool generates = is_uniform || row.count == 1;
    (generates ? step.generation_requests : step.context_tokens) += generates ? 1 : row.count;
    kv_tokens += row.end();
  }
  step.tokens = measured.plan.num_tokens();
  step.sequences = std::ssize(measured.plan.rows);
  step.kv_tokens = kv_tokens;
  step.mode = name(choice.mode);
  // A step that is larger than all sizes of its ladder ran without padding to a bucket, so its
  // entry in the log has no bucket.
  const runtime::Ladder& ladder =
      is_uniform ? measured.coverage.sequences : measured.coverage.tokens;
  const int64_t launched = is_uniform ? choice.key.sequences : choice.key.tokens;
  if (ladder.bucket(launched) == launched) step.bucket = launched;
  step.padding = choice.padding;
  step.reason = name(choice.reason);
  step.host_us = measured.host_us;
  step.gpu_us = measured.gpu_us;
  return step;
}

}  // namespace encore::setup
