// Converts steps that the engine has measured to entries of the step log.
#pragma once

#include "engine/engine.h"
#include "planning/step_log.h"

namespace encore::setup {

planning::LoggedStep logged(const engine::MeasuredStep& measured);

}  // namespace encore::setup
