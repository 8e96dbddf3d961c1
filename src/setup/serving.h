// Returns the options for loading a model and those of the engine's loop, for the commands that
// serve, chat or generate. These commands do not know their requests in advance.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/serving_loop.h"
#include "setup/options.h"
#include "text/chat_template.h"

namespace encore::setup {

// The most sequences in a step unless an option sets another number.
inline constexpr int64_t kServingMaxBatchSize = 256;

// Returns the options for loading a model, with limits and ladders for requests that are not known
// in advance. A step has at most `max_batch_size` sequences unless --max-batch-size gives another
// number. Errors: those of set_ladders(); kUsage if --max-seq-len is more than the model supports.
loader::LoadOptions serving_load_options(const config::Settings& settings,
                                         const model::ModelConfig& config,
                                         int64_t max_batch_size = kServingMaxBatchSize);

// Returns the most tokens that a prompt and its generated text may have together.
int64_t longest_text(const config::Settings& settings, const model::ModelConfig& config);
// The most tokens that are generated for a request that sets no number. default_max_tokens()
// returns this number, or less if the prompt leaves less room.
inline constexpr int64_t kDefaultMaxTokens = 200;
int64_t default_max_tokens(int64_t prompt_tokens, int64_t longest_text);

// Loads the chat template in `file`, or the checkpoint's template if `file` is empty. Errors: those
// of ChatTemplate::load().
text::ChatTemplate open_chat_template(const std::filesystem::path& checkpoint,
                                      const std::string& file);

// Returns the options of a serving engine. `step_log` may be null.
engine::ServingOptions serving_options(const config::Settings& settings,
                                       planning::StepLogWriter* step_log);
// Returns a text such as "steps of up to 256 sequences and 2048 tokens, ...", for the head of a
// report.
std::string serving_text(const runtime::Limits& limits, int64_t kv_tokens,
                         const engine::EngineOptions& loop);

}  // namespace encore::setup
