// Opens the device, the model and the tokenizer that the settings name.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "config/settings.h"
#include "loader/loaded_model.h"
#include "planning/step_log_writer.h"
#include "text/tokenizer.h"

namespace encore::setup {

// Returns the directory of the tuning cache: `option`, which is the value of --tuning-cache, or
// else $ENCORE_CACHE_DIR, $XDG_CACHE_HOME/encore or ~/.cache/encore. Returns nothing if `option` is
// "off", or if none of these is set.
std::optional<std::filesystem::path> tuning_directory(const std::string& option);

// Returns the directory in which Hugging Face's tools keep models: $HF_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub.
std::filesystem::path hub_cache();

// Returns the directory of the checkpoint that the option `flag` names; an empty name is the
// bundled model. Bundled models are searched beside the executable, or beside Encore's shared
// library if a program has loaded it (../share/encore/models, then up to the source tree's
// models/). If ORG/NAME is not a directory, it is searched in hub_cache(). Errors: kUsage if there
// is no such model; kModel, with the command that downloads it, for a name that the cache lacks.
std::filesystem::path model_directory(const std::string& name, std::string_view flag = "--model");

// Opens the device that --device names, with its tuner configured by --tune and --tuning-cache. If
// `auto` finds no usable GPU, opens the CPU and logs to stderr why. With --tensor-parallel above 1,
// returns the device of rank 0. Errors: kDevice, with the remedy, for cuda without a usable GPU;
// kUnsupported for several ranks on a device that does not support them.
std::unique_ptr<Device> open_device(const config::Settings& settings);

// Opens the checkpoint or synthetic model that --model names.
// Errors: kUsage if there is no model of that name; kModel.
model::ModelSource open_source(const config::Settings& settings);
// Opens the checkpoint or synthetic model that --draft-model names. Errors: as open_source().
model::ModelSource open_draft_source(const config::Settings& settings);

// Loads the tokenizer of a checkpoint. Returns nothing for synthetic models and for checkpoints
// without a tokenizer. Errors: those of Tokenizer::load.
std::optional<text::Tokenizer> open_tokenizer(const model::ModelSource& source);

// Returns why a checkpoint has no tokenizer, with the remedy. Returns nothing for a checkpoint that
// has one, and for synthetic models.
std::optional<std::string> missing_tokenizer(const model::ModelSource& source);

// Returns the tokens that end an answer: those of generation_config.json, those of config.json, and
// the tokenizer's end token. Logs a warning for each token that only config.json or the tokenizer
// has. `tokenizer` may be null.
std::vector<int32_t> end_tokens(const model::ModelSource& source, const text::Tokenizer* tokenizer);

// Opens the log that --step-log names. Returns null if the option is not given. Errors: those of
// StepLogWriter.
std::unique_ptr<planning::StepLogWriter> open_step_log(const config::Settings& settings);

// Returns the most tokens that a sequence may have: the value of --max-seq-len if it was given, and
// otherwise `needed`. Errors: kUsage, with the remedy, if `needed` does not fit the model or
// --max-seq-len.
int64_t sequence_limit(const config::Settings& settings, const model::ModelConfig& config,
                       int64_t needed);

// Returns those sizes of the default token ladder that are used by prompts with these numbers of
// tokens, if each prompt runs without other sequences, in chunks of at most `most` tokens.
runtime::Ladder prompt_sizes(std::span<const int64_t> lengths, int64_t most);

// Loads the model, and logs to stderr what was loaded, where, and how much memory and time this
// took; --verbose logs more. With `--speculative-tokens auto`, first drops the numbers of drafts
// that save no time (draft_options.h). Errors: those of LoadedModel, and those of
// Settings::load_for_debugging if debugging options are given.
std::unique_ptr<loader::LoadedModel> open_model(Device& device, const model::ModelSource& source,
                                                const loader::LoadOptions& load,
                                                const config::Settings& settings);

}  // namespace encore::setup
