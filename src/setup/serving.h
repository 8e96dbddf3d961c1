// Loads a model, and sets up the engine's loop, for the verbs that serve, chat or generate: they do
// not know their requests beforehand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/serving_loop.h"
#include "setup/options.h"
#include "text/chat_template.h"

namespace encore::setup {

// The most sequences in a step, where no flag says otherwise.
inline constexpr int64_t kServingMaxBatchSize = 256;

// Limits and ladders for requests that are not known yet, with at most `max_batch_size` sequences
// in a step unless --max-batch-size says otherwise. Errors: those of set_ladders(); kUsage when
// --max-seq-len is more than the model takes.
loader::LoadOptions serving_load_options(const config::Settings& settings,
                                         const model::ModelConfig& config,
                                         int64_t max_batch_size = kServingMaxBatchSize);

// The most tokens that a prompt and its generated text have together.
int64_t longest_text(const config::Settings& settings, const model::ModelConfig& config);
// The number of tokens to generate where a request does not say: these, or as many as there is room
// for behind the prompt.
inline constexpr int64_t kDefaultMaxTokens = 200;
int64_t default_max_tokens(int64_t prompt_tokens, int64_t longest_text);

// The template in `file`; the checkpoint's where that is empty. Errors: those of ChatTemplate::load().
text::ChatTemplate open_chat_template(const std::filesystem::path& checkpoint,
                                      const std::string& file);

// `step_log` may be null.
engine::ServingOptions serving_options(const config::Settings& settings,
                                       planning::StepLogWriter* step_log);
// "steps of up to 256 sequences and 2048 tokens, ...", for the head of a report.
std::string serving_text(const runtime::Limits& limits, int64_t kv_tokens,
                         const engine::EngineOptions& loop);

}  // namespace encore::setup
