// encore logits: the logits of every token of a prompt, as a NumPy file.
#include <algorithm>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/npy.h"
#include "cli/open.h"
#include "cli/verbs.h"
#include "engine/input_writer.h"
#include "engine/loaded_model.h"

namespace encore::cli {
namespace {

constexpr int64_t kDefaultMaxNumTokens = 512;  // bounds the logits in memory
constexpr std::string_view kPlaceholder = "{}";

constexpr const char* kFooter =
    R"(The file holds float32 [tokens, vocabulary]: row t has the logits of the token after ids 0 to t.
With --ids-file, each line that is not empty is a prompt (1,2,3 or [1, 2, 3]), the model is loaded once, and
{} in --out becomes the number of the prompt, from 0.)";

struct Options {
  CommonOptions common;
  std::string ids;
  std::string ids_file;
  std::string out;
};

using Prompt = std::vector<int32_t>;

std::vector<Prompt> read_prompts(const Options& options) {
  if (options.ids.empty() == options.ids_file.empty())
    fail(ErrorKind::kUsage, "give either --ids or --ids-file");
  std::vector<Prompt> prompts;
  if (!options.ids.empty()) {
    prompts.push_back(parse_ids(options.ids, "--ids"));
  } else {
    std::ifstream file(options.ids_file);
    if (!file) fail(ErrorKind::kUsage, "could not read {}", options.ids_file);
    int64_t number = 1;
    for (std::string line; std::getline(file, line); ++number) {
      Prompt prompt = parse_ids(line, fmt::format("{}:{}", options.ids_file, number));
      if (!prompt.empty()) prompts.push_back(std::move(prompt));
    }
  }
  if (prompts.empty() || prompts.front().empty()) fail(ErrorKind::kUsage, "there are no ids");
  if (prompts.size() > 1 && options.out.find(kPlaceholder) == std::string::npos) {
    fail(ErrorKind::kUsage, "{} prompts need {} in --out, which becomes their number",
         prompts.size(), kPlaceholder);
  }
  return prompts;
}

void check_ids(const std::vector<Prompt>& prompts, int64_t vocab_size) {
  for (const Prompt& prompt : prompts) {
    for (const int32_t id : prompt) {
      if (id >= vocab_size)
        fail(ErrorKind::kUsage, "token {} is outside the vocabulary of {}", id, vocab_size);
    }
  }
}

std::string path_of(const std::string& out, size_t number) {
  const size_t place = out.find(kPlaceholder);
  if (place == std::string::npos) return out;
  return out.substr(0, place) + std::to_string(number) + out.substr(place + kPlaceholder.size());
}

// Tokens [first, first + count) of the prompt as one step of one sequence, whose pages are 0, 1, 2,
// ...
void run_step(engine::LoadedModel& model, const Prompt& prompt, int64_t first, int64_t count) {
  runtime::Executor& executor = model.executor();
  executor.begin({count, 1, count <= model.limits().max_q ? static_cast<int>(count) : 0});
  std::vector<int32_t> pages((first + count + model.page_size() - 1) / model.page_size());
  std::iota(pages.begin(), pages.end(), 0);
  engine::InputWriter(executor.inputs(), model.page_size())
      .add({std::span(prompt).subspan(first, count), first, pages, {}});
  executor.launch({count, first + count});
}

void write_logits(engine::LoadedModel& model, const Prompt& prompt, const std::string& path) {
  const int64_t vocab_size = model.config().vocab_size;
  const int64_t chunk = model.limits().max_num_tokens;
  const auto length = static_cast<int64_t>(prompt.size());
  NpyWriter file(path, length, vocab_size);
  std::vector<float> logits(std::min(chunk, length) * vocab_size);
  for (int64_t first = 0; first < length; first += chunk) {
    const int64_t count = std::min(chunk, length - first);
    run_step(model, prompt, first, count);
    const std::span<float> rows = std::span(logits).first(count * vocab_size);
    model.executor().read_output(0, rows.data(), static_cast<int64_t>(rows.size_bytes()));
    file.write(rows);
  }
  file.finish();
}

void logits(const Options& options) {
  const std::vector<Prompt> prompts = read_prompts(options);
  const engine::ModelSource source = open_source(options.common);
  check_ids(prompts, source.config.vocab_size);
  int64_t longest = 0;
  for (const Prompt& prompt : prompts)
    longest = std::max(longest, static_cast<int64_t>(prompt.size()));

  engine::LoadOptions load = load_options(options.common);
  load.logits = model::LogitsRows::kAll;
  load.limits.max_batch_size = 1;
  load.limits.max_num_tokens =
      options.common.max_num_tokens.value_or(std::min(longest, kDefaultMaxNumTokens));
  load.limits.max_seq_len = sequence_limit(options.common, source.config, longest);
  if (load.kv_tokens && *load.kv_tokens < longest) {
    fail(ErrorKind::kUsage, "a prompt of {} tokens does not fit --kv-tokens {}: raise it", longest,
         *load.kv_tokens);
  }
  load.kv_tokens = longest;

  const std::unique_ptr<Device> device = open_device(options.common);
  engine::LoadedModel model(*device, source, load);
  log_start_up(model, *device);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string path = path_of(options.out, i);
    write_logits(model, prompts[i], path);
    log::info("{}: float32 [{}, {}]", path, prompts[i].size(), source.config.vocab_size);
  }
}

}  // namespace

void add_logits(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("logits", "Logits of every token of a prompt, as a NumPy file");
  auto options = std::make_shared<Options>();  // shared by the parser's options and the callback
  options->common.graphs = "none";             // recording takes longer than one walk
  add_model_option(*verb, options->common);
  verb->add_option("--ids", options->ids, "The prompt as token ids: 1,2,3")->type_name("IDS");
  verb->add_option("--ids-file", options->ids_file, "A file with a prompt a line")
      ->type_name("FILE");
  verb->add_option("--out", options->out, "The .npy file to write")->type_name("FILE")->required();
  add_device_options(*verb, options->common);
  add_graphs_option(*verb, options->common);
  add_dtype_option(*verb, options->common);
  add_size_options(*verb, options->common);
  add_pass_options(*verb, options->common);
  add_config_options(*verb, options->common.config);
  verb->footer(kFooter);
  verb->callback([options, verb] {
    apply_config(*verb, options->common.config);
    logits(*options);
  });
}

}  // namespace encore::cli
