// Turns settings into the options of the loader and the engine.
#pragma once

#include <cstdint>
#include <string>

#include "config/settings.h"
#include "engine/engine.h"
#include "planning/step_log_writer.h"

namespace encore::setup {

// Says how a model is loaded: with recordings in the modes that --graphs names, else in those of
// `auto`. The verb sets the limits and ladders.
loader::LoadOptions load_options(const config::Settings& settings);
// Has the adapter that --adapter names be loaded, and called so: one of --lora's, or a directory. Nothing
// where it is empty. Errors: kUsage when it is neither.
void use_adapter(const std::string& adapter, loader::AdapterOptions& options);
// Makes the options of the loop; `step_log` may be null.
engine::EngineOptions engine_options(const config::Settings& settings,
                                     planning::StepLogWriter* step_log);
// Sets the ladders that the settings name, up to the limits in `load`, and leaves others as they
// are. Under --above-ladder split the limits then end where the ladders do. Errors: those of
// Ladder::named_or_list, naming the flag, and of split_limits.
void set_ladders(const config::Settings& settings, loader::LoadOptions& load);
// Ends the limits where the ladders do, under --above-ladder split.
void split_if_asked(const config::Settings& settings, loader::LoadOptions& load);
// A ladder as a flag gives it; a list ends at `max`, with a note, where it goes on above.
// Errors: as named_or_list, naming `flag`.
runtime::Ladder parse_ladder(const char* flag, const std::string& text, int64_t max);

}  // namespace encore::setup
