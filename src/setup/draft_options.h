// Chooses the numbers of drafts that `--speculative-tokens auto` stands for on a device.
#pragma once

#include "backend/device.h"
#include "loader/loaded_model.h"

namespace encore::setup {

// Removes from the options those numbers of drafts that gain nothing by the estimated cost of the
// model's ops on this device, and limits drafts to the sizes of steps in which they gain. Logs to
// stderr what is left, and why. If no number gains, the draft model is removed too. Does nothing if
// the options have no drafts. Errors: those of loader::compile_model().
void choose_drafts(Device& device, const model::ModelSource& source, loader::LoadOptions& load);

}  // namespace encore::setup
