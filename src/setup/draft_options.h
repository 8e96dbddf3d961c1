// Chooses the numbers of drafts that `--speculative-tokens auto` stands for on a device.
#pragma once

#include "backend/device.h"
#include "loader/loaded_model.h"

namespace encore::setup {

// Removes from `load` those numbers of drafts that save no time, by the estimated cost of the
// model's ops on this device. Also sets limits.max_drafting_sequences, the most sequences of a step
// in which drafting saves time. Logs to stderr which numbers of drafts remain, and why. If no
// number saves time, the draft model is removed too. Does nothing if limits.num_drafts is 0.
// Errors: those of loader::compile_model().
void choose_drafts(Device& device, const model::ModelSource& source, loader::LoadOptions& load);

}  // namespace encore::setup
