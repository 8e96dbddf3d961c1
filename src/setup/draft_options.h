// The numbers of drafts that `--speculative-tokens auto` stands for on a device.
#pragma once

#include "backend/device.h"
#include "loader/loaded_model.h"

namespace encore::setup {

// Takes numbers of drafts out of the options, and drafts of large steps, that gain nothing by the cost of the model's
// ops on this device; a line on stderr says what is left, and why. Where no number gains, there is no draft model either.
// Does nothing where the options have no drafts. Errors: those of loader::compile_model().
void choose_drafts(Device& device, const model::ModelSource& source, loader::LoadOptions& load);

}  // namespace encore::setup
