// Opens what settings name: a device, a model, its tokenizer.
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

// The directory of measured kernel choices: `option`, as --tuning-cache gives it, else
// $ENCORE_CACHE_DIR, $XDG_CACHE_HOME/encore or ~/.cache/encore. Nothing when it is "off" or none of
// these is set.
std::optional<std::filesystem::path> tuning_directory(const std::string& option);

// The directory in which Hugging Face's tools keep models: $HF_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub.
std::filesystem::path hub_cache();

// The directory of a checkpoint named on the command line by `flag`; the bundled model when the name is
// empty. The bundled model is looked for beside the executable or library (../share/encore/models,
// then up to the source tree's models/). ORG/NAME that is no directory is looked for in hub_cache(). Errors: kUsage
// when there is none; kModel, with the command that fetches it, for a name that the cache lacks.
std::filesystem::path model_directory(const std::string& name, std::string_view flag = "--model");

// The device that --device names, its tuner set up as --tune and --tuning-cache say. For auto
// without a usable GPU, the CPU and a line on stderr that says why. With --tensor-parallel above 1, rank
// 0's of so many. Errors: kDevice for cuda when there is none, with the remedy; kUnsupported for several
// ranks elsewhere than on the CPU.
std::unique_ptr<Device> open_device(const config::Settings& settings);

// The checkpoint or synthetic model that --model names.
// Errors: kUsage when there is none of that name; kModel.
model::ModelSource open_source(const config::Settings& settings);
// The checkpoint or synthetic model that --draft-model names. Errors: as open_source().
model::ModelSource open_draft_source(const config::Settings& settings);

// The tokenizer beside a checkpoint; nothing for synthetic models and directories without
// tokenizer.json. Errors: those of Tokenizer::load.
std::optional<text::Tokenizer> open_tokenizer(const model::ModelSource& source);

// Says why a checkpoint's text cannot be read or written, with the remedy; nothing where
// open_tokenizer() finds one, and for synthetic models.
std::optional<std::string> missing_tokenizer(const model::ModelSource& source);

// Tokens of which any ends an answer: those of generation_config.json, of config.json, and the
// tokenizer's end token; a warning names what only the last two have. `tokenizer`: may be null.
std::vector<int32_t> end_tokens(const model::ModelSource& source, const text::Tokenizer* tokenizer);

// The log that --step-log names; null when it names none. Errors: those of StepLogWriter.
std::unique_ptr<planning::StepLogWriter> open_step_log(const config::Settings& settings);

// --max-seq-len when it was given, else `needed`. Errors: kUsage, with the remedy, when `needed`
// does not fit.
int64_t sequence_limit(const config::Settings& settings, const model::ModelConfig& config,
                       int64_t needed);

// The sizes of the default token ladder that prompts of those lengths pass through, in chunks of at
// most `most`: what a start prepares when it serves them alone.
runtime::Ladder prompt_sizes(std::span<const int64_t> lengths, int64_t most);

// Loads the model, and says in a line on stderr what was loaded, where, in how much memory and time;
// --verbose says more. With `--speculative-tokens auto`, takes of its drafts those that may gain (draft_options.h). Errors: those of LoadedModel, and of
// Settings::load_for_debugging where that is asked for.
std::unique_ptr<loader::LoadedModel> open_model(Device& device, const model::ModelSource& source,
                                                const loader::LoadOptions& load,
                                                const config::Settings& settings);

}  // namespace encore::setup
