// Implements `encore logits`, which writes the logits of every token of a prompt to a NumPy file.
#include <algorithm>
#include <list>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backend/tuning.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rounding.h"
#include "cli/command.h"
#include "cli/npy.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "diagnose/probe.h"
#include "engine/input_writer.h"
#include "loader/loaded_model.h"
#include "measure/prompt_step.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr int64_t kLogitsDefaultMaxNumTokens = 512;  // bounds the memory that a step's logits take
constexpr std::string_view kPlaceholder = "{}";

constexpr const char* kLogitsFooter =
    R"(The file holds float32 [tokens, vocabulary]: row t has the logits of the token after ids 0 to t.
With --ids-file, each line that is not empty is a prompt (1,2,3 or [1, 2, 3]), the model is loaded once, and
{} in --out becomes the number of the prompt, from 0.

With --decode all prompts run side by side as a server decodes, one token of each a step, in full recordings
unless --graphs says otherwise. They end together: in each step every sequence has a length of its own, and
the longest begins alone. Add --eager-steps forbid to be told of a size without a recording.)";

struct LogitsOptions {
  config::Settings settings;
  std::string ids;
  std::string ids_file;
  std::string out;
  bool decode = false;
  std::string adapter;
};

using TokenIds = std::vector<int32_t>;

std::string read_ids_file(const std::string& path) {
  try {
    return json::read_file(path);
  } catch (const Error& error) {  // the error's own kind would blame the model
    fail(ErrorKind::kUsage, "--ids-file {}", error.what());
  }
}

std::vector<TokenIds> read_prompts(const LogitsOptions& options) {
  if (options.ids.empty() == options.ids_file.empty())
    fail(ErrorKind::kUsage, "give either --ids or --ids-file");
  std::vector<TokenIds> prompts;
  if (!options.ids.empty()) {
    prompts.push_back(parse_ids(options.ids, "--ids"));
  } else {
    std::istringstream file(read_ids_file(options.ids_file));
    int64_t number = 1;
    for (std::string line; std::getline(file, line); ++number) {
      TokenIds prompt = parse_ids(line, fmt::format("{}:{}", options.ids_file, number));
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

void check_ids(const std::vector<TokenIds>& prompts, int64_t vocab_size) {
  for (const TokenIds& prompt : prompts) {
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

void write_logits(loader::LoadedModel& model, const TokenIds& prompt, const std::string& path,
                  int32_t adapter) {
  const int64_t vocab_size = model.config().vocab_size;
  const int64_t chunk = model.limits().max_num_tokens;
  const auto length = static_cast<int64_t>(prompt.size());
  NpyWriter file(path, length, vocab_size);
  std::vector<float> logits(std::min(chunk, length) * vocab_size);
  for (int64_t first = 0; first < length; first += chunk) {
    const int64_t count = std::min(chunk, length - first);
    measure::run_prompt_step(model, prompt, first, count, adapter);
    const std::span<float> rows = std::span(logits).first(count * vocab_size);
    diagnose::read_output(model.executor(), 0, rows.data(),
                          static_cast<int64_t>(rows.size_bytes()));
    file.write(rows);
  }
  file.finish();
}

// Holds one of the prompts that are decoded side by side.
struct Decoding {
  Decoding(const TokenIds& prompt, int64_t first_step, const std::string& path, int64_t vocab_size)
      : prompt(prompt),
        first_step(first_step),
        file(path, static_cast<int64_t>(prompt.size()), vocab_size) {}

  const TokenIds& prompt;
  int64_t first_step;  // the step in which its first token is fed
  std::vector<int32_t> pages;
  NpyWriter file;
};

void write_decoded(loader::LoadedModel& model, const std::vector<TokenIds>& prompts,
                   int64_t longest, const std::string& out, int32_t adapter) {
  const int64_t vocab_size = model.config().vocab_size;
  runtime::Executor& executor = model.executor();
  std::list<Decoding> sequences;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].size());
    sequences.emplace_back(prompts[i], longest - length, path_of(out, i), vocab_size);
  }
  int32_t num_pages = 0;
  std::vector<float> logits(prompts.size() * static_cast<size_t>(vocab_size));
  for (int64_t step = 0; step < longest; ++step) {
    std::vector<Decoding*> running;
    for (Decoding& sequence : sequences)
      if (sequence.first_step <= step) running.push_back(&sequence);
    const auto batch = static_cast<int64_t>(running.size());
    executor.begin(StepKey::uniform(batch));
    engine::InputWriter writer(executor, model.page_size());
    for (Decoding* sequence : running) {
      const int64_t position = step - sequence->first_step;
      if (position % model.page_size() == 0) sequence->pages.push_back(num_pages++);
      writer.add({.ids = std::span(sequence->prompt).subspan(position, 1),
                  .first = position,
                  .pages = sequence->pages,
                  .max_len = longest + 1,
                  .adapter = adapter});
    }
    executor.run({1, step + 1});
    const std::span<float> rows = std::span(logits).first(batch * vocab_size);
    diagnose::read_output(executor, 1, rows.data(), static_cast<int64_t>(rows.size_bytes()));
    for (int64_t row = 0; row < batch; ++row)
      running[row]->file.write(rows.subspan(row * vocab_size, vocab_size));
  }
  for (Decoding& sequence : sequences)
    sequence.file.finish();
}

void logits(LogitsOptions options) {
  const std::vector<TokenIds> prompts = read_prompts(options);
  const model::ModelSource source = setup::open_source(options.settings);
  check_ids(prompts, source.config.vocab_size);
  // Without --decode the default is to record nothing, because recording would take longer than
  // running the prompt once.
  if (!options.settings.graphs)
    options.settings.graphs = options.decode ? runtime::Graphs::kFull : runtime::Graphs::kNone;
  const auto num_prompts = static_cast<int64_t>(prompts.size());
  int64_t longest = 0;
  int64_t kv_tokens = 0;  // tokens that are in the cache at one time
  std::vector<int64_t> lengths;
  for (const TokenIds& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.size());
    const int64_t page = options.settings.load.page_size;
    const int64_t kept = round_up(length, page);
    lengths.push_back(length);
    longest = std::max(longest, length);
    kv_tokens = options.decode ? kv_tokens + kept : std::max(kv_tokens, length);
  }

  loader::LoadOptions load = setup::load_options(options.settings);
  setup::use_adapter(options.adapter, load.adapters);
  load.logits = options.decode ? model::LogitsRows::kLast : model::LogitsRows::kAll;
  load.limits.max_batch_size = options.decode ? num_prompts : 1;
  load.limits.max_num_tokens =
      options.decode
          ? num_prompts
          : options.settings.max_num_tokens.value_or(std::min(longest, kLogitsDefaultMaxNumTokens));
  load.limits.max_seq_len = setup::sequence_limit(options.settings, source.config, longest);
  if (!options.decode) load.tokens = setup::prompt_sizes(lengths, load.limits.max_num_tokens);
  if (load.kv_tokens && *load.kv_tokens < kv_tokens) {
    fail(ErrorKind::kUsage, "{} tokens do not fit --kv-tokens {}: raise it", kv_tokens,
         *load.kv_tokens);
  }
  load.kv_tokens = kv_tokens;

  const std::unique_ptr<Device> device = setup::open_device(options.settings);
  const auto loaded = setup::open_model(*device, source, load, options.settings);
  loader::LoadedModel& model = *loaded;
  std::shared_ptr<const loader::ResidentAdapter> resident;
  if (!options.adapter.empty())
    resident = model.adapters()->wait_for(model.adapters()->find(options.adapter));
  const int32_t adapter = resident ? resident->slot() : -1;
  const Tuner::Phase tuning(device->tuner());  // tunes kernels for sizes that first occur now
  if (options.decode) {
    write_decoded(model, prompts, longest, options.out, adapter);
    return log::info("{}: float32 [tokens, {}] of {} prompts", options.out,
                     source.config.vocab_size, prompts.size());
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string path = path_of(options.out, i);
    write_logits(model, prompts[i], path, adapter);
    log::info("{}: float32 [{}, {}]", path, prompts[i].size(), source.config.vocab_size);
  }
}

}  // namespace

void add_logits(Command& app) {
  Command* verb =
      app.add_subcommand("logits", "Logits of every token of a prompt, as a NumPy file");
  auto options =
      std::make_shared<LogitsOptions>();  // shared by the parser's options and the callback
  verb->add_option("--ids", options->ids, "The prompt as token ids: 1,2,3")->type_name("IDS");
  verb->add_option("--ids-file", options->ids_file, "A file with a prompt a line")
      ->type_name("FILE");
  verb->add_option("--out", options->out, "The .npy file to write")->type_name("FILE")->required();
  verb->add_option("--adapter", options->adapter,
                   "The adapter (LoRA) that computes: a name of --lora, or the directory of one")
      ->type_name("NAME|PATH");
  verb->add_flag("--decode", options->decode,
                 "Feed the ids one a step, all prompts side by side, as decode steps");
  using config::Group;
  // The options in `but` do not apply: the prompts set the number of sequences, and KV holds
  // exactly what they need.
  take_options(
      *verb, options->settings,
      {.groups = {Group::kModel, Group::kDevice, Group::kGraphs, Group::kSizes, Group::kCompiler},
       .but = {"max_batch_size", "free_gpu_memory_fraction", "memory_reserve"}});
  verb->footer(kLogitsFooter);
  verb->callback([options] { logits(*options); });
}

}  // namespace encore::cli
