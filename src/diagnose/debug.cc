#include "diagnose/debug.h"

#include "base/log.h"
#include "diagnose/compare.h"
#include "diagnose/saved_program.h"
#include "diagnose/value_trace.h"

namespace encore::diagnose {

std::unique_ptr<engine::LoadedModel> load_model(Device& device, const model::ModelSource& source,
                                                engine::LoadOptions options,
                                                const DebugOptions& debug) {
  if (!debug.trace.empty()) options.compile.reuse_memory = false;
  if (debug.check_recordings) {
    options.check_addresses = true;
    if (options.poison == runtime::Poison::kNone) options.poison = runtime::Poison::kNaN;
  }
  auto model = std::make_unique<engine::LoadedModel>(device, source, options);
  if (!debug.save_programs.empty())
    log::info("saved {}", save_program(model->executor(), debug.save_programs).string());
  if (debug.check_recordings) require_equal_recordings(*model);
  if (!debug.trace.empty())
    model->executor().set_after_step(ValueTrace(model->compiled().program, debug.trace));
  return model;
}

}  // namespace encore::diagnose
