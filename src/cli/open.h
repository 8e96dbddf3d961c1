// From names on the command line to the things they name: a device, a model, its tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "backend/device.h"
#include "cli/options.h"
#include "engine/loaded_model.h"
#include "text/tokenizer.h"

namespace encore::cli {

// Where measured kernel choices are kept: `option`, as --tuning-cache gives it, else
// $ENCORE_CACHE_DIR, $XDG_CACHE_HOME/encore or ~/.cache/encore. Nothing when it is "off" or none of
// these is set.
std::optional<std::filesystem::path> tuning_directory(const std::string& option);

// The device that --device names, its tuner set up as --tune and --tuning-cache say. For auto
// without a usable GPU, the CPU and a line on stderr that says why. Errors: kDevice for cuda when
// there is none, with the remedy.
std::unique_ptr<Device> open_device(const CommonOptions& options);

// The checkpoint or synthetic model that --model names.
// Errors: kUsage when there is none of that name; kModel.
engine::ModelSource open_source(const CommonOptions& options);

// The tokenizer beside a checkpoint; nothing for synthetic models and directories without
// tokenizer.json. Errors: those of Tokenizer::load.
std::optional<text::Tokenizer> open_tokenizer(const engine::ModelSource& source);

// Tokens that one sequence of the model may have: its positions, or its sliding window where that
// is less.
int64_t longest_sequence(const model::ModelConfig& config);

// --max-seq-len when it was given, else `needed`. Errors: kUsage, with the remedy, when `needed`
// does not fit.
int64_t sequence_limit(const CommonOptions& options, const model::ModelConfig& config,
                       int64_t needed);

// One line on stderr: what was loaded, in how much memory, with how many recordings.
void log_start_up(engine::LoadedModel& model, Device& device);

}  // namespace encore::cli
