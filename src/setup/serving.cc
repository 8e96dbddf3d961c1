#include "setup/serving.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "model/gguf/metadata.h"
#include "setup/open.h"

namespace encore::setup {
namespace {

constexpr int64_t kDefaultMaxNumTokens = 2048;
// The fraction of free host memory that the KV cache may use. The remaining three quarters are left
// to other programs on the machine.
constexpr double kHostFraction = 0.25;

}  // namespace

loader::LoadOptions serving_load_options(const config::Settings& settings,
                                         const model::ModelConfig& config, int64_t max_batch_size) {
  const int64_t longest = longest_sequence(config);
  if (settings.max_seq_len && *settings.max_seq_len > longest) {
    fail(ErrorKind::kUsage, "--max-seq-len {}: the model takes at most {}", *settings.max_seq_len,
         longest);
  }
  loader::LoadOptions load = load_options(settings);
  load.scores_prompts = true;
  load.masks_tokens = true;
  load.window_pages = settings.window_pages;
  load.host_fraction = kHostFraction;
  load.limits.max_seq_len = settings.max_seq_len.value_or(longest);
  load.limits.max_batch_size = settings.max_batch_size.value_or(max_batch_size);
  load.limits.max_num_tokens =
      settings.max_num_tokens.value_or(std::max(kDefaultMaxNumTokens, load.limits.max_batch_size));
  set_ladders(settings, load);
  return load;
}

int64_t longest_text(const config::Settings& settings, const model::ModelConfig& config) {
  return settings.max_seq_len.value_or(longest_sequence(config));
}

int64_t default_max_tokens(int64_t prompt_tokens, int64_t longest_text) {
  return std::clamp<int64_t>(longest_text - prompt_tokens, 1, kDefaultMaxTokens);
}

text::ChatTemplate open_chat_template(const std::filesystem::path& checkpoint,
                                      const std::string& file) {
  if (model::gguf::is_gguf(checkpoint)) {
    json::object config = model::gguf::tokenizer_config_json(model::gguf::File(checkpoint));
    if (!file.empty()) config["chat_template"] = json::read_file(file);
    return text::ChatTemplate::parse(std::move(config), file.empty() ? checkpoint.string() : file);
  }
  return file.empty() ? text::ChatTemplate::load(checkpoint)
                      : text::ChatTemplate::load(checkpoint, file);
}

engine::ServingOptions serving_options(const config::Settings& settings,
                                       planning::StepLogWriter* step_log) {
  engine::ServingOptions serving = settings.serving;
  serving.engine = engine_options(settings, step_log);
  return serving;
}

std::string serving_text(const runtime::Limits& limits, int64_t kv_tokens,
                         const engine::EngineOptions& loop) {
  const std::string target =
      loop.target_step_ms
          ? fmt::format(", {:g} ms where prompts run beside others", *loop.target_step_ms)
          : "";
  return fmt::format(
      "steps of up to {} sequences and {} tokens{}; KV for {} tokens, prefix cache {}",
      limits.max_batch_size, limits.max_num_tokens, target, kv_tokens,
      loop.prefix_cache ? "on" : "off");
}

}  // namespace encore::setup
