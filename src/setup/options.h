// Converts settings to the options of the loader and the engine.
#pragma once

#include <cstdint>
#include <string>

#include "config/settings.h"
#include "engine/engine.h"
#include "planning/step_log_writer.h"

namespace encore::setup {

// Returns how a model is loaded. The modes of recording are those that --graphs names, or `auto` if
// the option is not given. The caller sets the limits and the ladders.
loader::LoadOptions load_options(const config::Settings& settings);
// Adds the adapter that --adapter names to `options`. `adapter` is the name of an adapter of
// --lora, which is there already, or a directory, by which the adapter is then also named. Does
// nothing if it is empty. Errors: kUsage if it is neither.
void use_adapter(const std::string& adapter, loader::AdapterOptions& options);
// Returns the options of the engine's loop. `step_log` may be null.
engine::EngineOptions engine_options(const config::Settings& settings,
                                     planning::StepLogWriter* step_log);
// Sets the ladders that the settings name, up to the limits in `load`; other ladders are unchanged.
// If --max-num-tokens is not given, also enlarges load.limits.max_num_tokens so that a step has
// room for all drafts of all sequences. If it is given, drops those automatically chosen numbers of
// drafts for which it leaves no room. With --above-ladder split, then lowers the limits on a step's
// tokens and sequences to the ladders' largest sizes. Errors: those of Ladder::named_or_list,
// naming the flag, and of split_limits.
void set_ladders(const config::Settings& settings, loader::LoadOptions& load);
// With --above-ladder split, lowers the limits on a step's tokens and sequences to the ladders'
// largest sizes. Does nothing otherwise.
void split_if_asked(const config::Settings& settings, loader::LoadOptions& load);
// Parses the ladder that a flag gives. Sizes of a list above `max` are replaced by `max`, which is
// logged. Errors: those of Ladder::named_or_list, naming `flag`.
runtime::Ladder parse_ladder(const char* flag, const std::string& text, int64_t max);

}  // namespace encore::setup
