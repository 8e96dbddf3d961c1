// What verbs make of their settings, and the flags that several share beside the table's options.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cli/command.h"
#include "cli/take_options.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "runtime/step_log.h"
#include "sample/params.h"

namespace encore::cli {

void add_sampling_options(Command& verb, sample::SamplingParams& sampling);
void add_json_flag(Command& verb, bool& json);  // --json

// "bf16", or "bf16 with KV in fp8".
std::string dtype_text(DType dtype, DType kv_dtype);

// How a model is loaded: in the modes that --graphs names, else in auto's. The verb sets the limits and
// ladders.
engine::LoadOptions load_options(const config::Settings& settings);
// What the loop is told; `step_log` may be null.
engine::EngineOptions engine_options(const config::Settings& settings, runtime::StepLog* step_log);
// The model, as a report names it.
std::string model_text(const config::Settings& settings);
// The ladders that were asked for, up to the limits in `load`; others stay as they are. Under
// --above-ladder split the limits then end where the ladders do.
// Errors: those of Ladder::named_or_list, naming the flag, and of split_limits.
void set_ladders(const config::Settings& settings, engine::LoadOptions& load);
// Ends the limits where the ladders do, under --above-ladder split.
void split_if_asked(const config::Settings& settings, engine::LoadOptions& load);
// A ladder as a flag gives it; a list ends at `max`, with a note, where it goes on above.
// Errors: as named_or_list, naming `flag`.
runtime::Ladder parse_ladder(const char* flag, const std::string& text, int64_t max);

// The log that --step-log names; null when it names none. Errors: those of StepLogWriter.
std::unique_ptr<runtime::StepLogWriter> open_step_log(const std::string& path);

// "1,2,3", also with spaces or in brackets. `where` names the source in messages.
// Errors: kUsage.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& where);

}  // namespace encore::cli
