#include "diagnose/debug.h"

#include "base/log.h"
#include "diagnose/compare.h"
#include "diagnose/probe.h"
#include "diagnose/saved_program.h"
#include "diagnose/value_trace.h"

namespace encore::diagnose {

std::unique_ptr<loader::LoadedModel> load_model(Device& device, const model::ModelSource& source,
                                                loader::LoadOptions options,
                                                const DebugOptions& debug) {
  if (debug.check_recordings && device.rank().size > 1) {
    fail(ErrorKind::kUsage,
         "--graphs-debug with --tensor-parallel {}: steps that are compared run on one rank alone; "
         "take one of the two",
         device.rank().size);
  }
  if (!debug.trace.empty()) options.compile.reuse_memory = false;
  auto model = std::make_unique<loader::LoadedModel>(device, source, options);
  if (!debug.save_programs.empty())
    log::info("saved {}", save_program(model->executor(), debug.save_programs).string());
  runtime::StepHooks& hooks = model->executor().hooks();
  if (debug.check_recordings) {
    poison_steps(model->executor(), Poison::kNaN);
    hooks.before = [poison = hooks.before](runtime::Executor& executor) {
      check_addresses(executor);
      poison(executor);
    };
    require_equal_recordings(*model);
  }
  if (!debug.trace.empty()) hooks.after = ValueTrace(model->program(), debug.trace);
  return model;
}

}  // namespace encore::diagnose
