#include "measure/speculation.h"

#include "measure/timing.h"

namespace encore::measure {

TimedSteps time_decoding(engine::Engine& engine, const DecodingOptions& options) {
  Decoding decoding(engine, options);
  const int64_t generated = decoding.num_generated();
  const double start = now_seconds();
  for (int64_t i = 0; i < options.steps; ++i)
    (void)decoding.step();
  const double seconds = now_seconds() - start;
  const auto steps = static_cast<double>(options.steps);
  const auto tokens = static_cast<double>(decoding.num_generated() - generated);
  return {.step_ms = seconds * 1e3 / steps,
          .tokens_per_step = tokens / steps / static_cast<double>(options.batch),
          .tokens_per_s = tokens / seconds};
}

double time_apart(engine::Engine& drafting, engine::Engine& checking, int64_t num_drafts,
                  const DecodingOptions& options) {
  DecodingOptions guessing = options;
  guessing.steps *= num_drafts;
  Decoding guesses(drafting, guessing);
  Decoding checks(checking, options);
  const double start = now_seconds();
  for (int64_t i = 0; i < options.steps; ++i) {
    for (int64_t place = 0; place < num_drafts; ++place)
      (void)guesses.step();
    (void)checks.step();
  }
  return (now_seconds() - start) * 1e3 / static_cast<double>(options.steps);
}

}  // namespace encore::measure
