// A step that the engine measured, as the step log has it.
#pragma once

#include "engine/engine.h"
#include "planning/step_log.h"

namespace encore::setup {

planning::LoggedStep logged(const engine::MeasuredStep& measured);

}  // namespace encore::setup
