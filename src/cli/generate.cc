// Implements `encore generate`, which generates text from a prompt and streams it.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/generate_prompts.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "engine/engine.h"
#include "loader/memory_plan.h"
#include "measure/report.h"
#include "setup/open.h"
#include "setup/options.h"
#include "setup/serving.h"
#include "text/output_text.h"

namespace encore::cli {
namespace {

constexpr const char* kDefaultPrompt = "Once upon a time";
constexpr int64_t kGenerateDefaultMaxNumTokens = 2048;
constexpr int64_t kRandomPromptTokens = 16;

constexpr const char* kGenerateFooter =
    R"(--prompts takes many prompts, one a line, or JSON objects {"prompt": ..., "temperature": ..., ...} with
parameters of their own (prompt or prompt_ids, id, n, max_tokens, stop, ignore_eos, adapter, and those of sampling as the
flags below name them, with _ for -), generates them together, and prints a JSON line a text, in their order:
  {index, id, number, prompt_tokens, ids, text, finish}
So does -n, which generates several texts, each with a seed one higher. Text that is piped in is the prompt.

Else stdout has the generated text alone; without a tokenizer, the ids. --json prints one object:
  prompt_ids, ids, text (null without a tokenizer), finish (stop, length, interrupted),
  timings {load_s, first_token_ms, total_s, tokens_per_s}
  stats {steps [{mode, bucket_tokens, bucket_sequences, q, reason, steps, tokens, padding}], drafts {tokens, right, speculative_tokens, max_sequences},
         memory {weights, kv, arena, arena_without_reuse, step_inputs, scratch},
         recordings {full {recordings, executables, nodes, capture_ms, instantiate_ms}, pieces {...},
                     lower_ms}}
tokens_per_s counts from the first token to the last; first_token_ms is what the prompt took.)";

struct GenerateOptions {
  config::Settings settings;
  std::string prompt;
  std::string prompt_ids;
  std::string prompts;
  std::optional<int64_t> max_tokens;
  int64_t n = 1;
  std::vector<std::string> stop;
  sample::SamplingParams sampling;
  std::string adapter;
  bool ignore_eos = false;
  bool echo = false;
  bool stats = false;
  bool json = false;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};

Prompt read_prompt(const GenerateOptions& options, const model::ModelConfig& config,
                   const std::optional<text::Tokenizer>& tokenizer) {
  if (!options.prompt_ids.empty()) {
    Prompt prompt{"", parse_ids(options.prompt_ids, "--prompt-ids")};
    if (tokenizer) prompt.text = tokenizer->decode(prompt.ids);
    return prompt;
  }
  if (tokenizer) {
    const std::string text = options.prompt.empty() ? kDefaultPrompt : options.prompt;
    return {text, tokenizer->encode(text)};
  }
  if (!options.prompt.empty()) {
    fail(ErrorKind::kUsage,
         "--prompt needs a tokenizer.json beside the model; give --prompt-ids instead");
  }
  std::mt19937_64 random(static_cast<uint64_t>(options.sampling.seed));
  Prompt prompt;
  for (int64_t i = 0; i < kRandomPromptTokens; ++i) {
    prompt.ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(config.vocab_size)));
  }
  return prompt;
}

// Opens the model's tokenizer. If it cannot be read and the prompt is given as ids, warns and goes
// on without text.
std::optional<text::Tokenizer> read_tokenizer(const GenerateOptions& options,
                                              const model::ModelSource& source) {
  try {
    return setup::open_tokenizer(source);
  } catch (const Error& error) {
    if (options.prompt_ids.empty()) throw;
    log::warning("no text, only ids: {}", error.what());
    return std::nullopt;
  }
}

// Refuses a request that the engine would refuse. Runs before the weights are loaded.
void check_request(const engine::Request& request, const model::ModelConfig& config,
                   const config::Settings& settings) {
  for (const int32_t id : request.prompt) {
    if (id >= config.vocab_size) {
      fail(ErrorKind::kUsage, "token {} is outside the vocabulary of {}", id, config.vocab_size);
    }
  }
  const int64_t needed = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (settings.load.kv_tokens && needed > *settings.load.kv_tokens) {
    fail(ErrorKind::kUsage,
         "a prompt of {} tokens and {} to generate do not fit --kv-tokens {}: raise it to {}",
         request.prompt.size(), request.max_tokens, *settings.load.kv_tokens, needed);
  }
}

// Sets ladders that have only the sizes through which this one request passes, so that starting is
// quick. The sizes belong to the default ladders, so the request gets the same tokens as from a
// server.
void set_sizes(const GenerateOptions& options, int64_t prompt_tokens, loader::LoadOptions& load) {
  load.tokens =
      setup::prompt_sizes(std::array{prompt_tokens},
                          options.settings.max_num_tokens.value_or(kGenerateDefaultMaxNumTokens));
  load.limits.max_batch_size = options.settings.max_batch_size.value_or(1);
  load.limits.max_num_tokens = options.settings.max_num_tokens.value_or(
      options.settings.token_ladder.empty()
          ? std::max(load.tokens.sizes().back(), load.limits.max_batch_size)
          : std::max(kGenerateDefaultMaxNumTokens, load.limits.max_batch_size));
  setup::set_ladders(options.settings, load);
}

// Holds the result of a request.
struct GenerateResult {
  std::vector<int32_t> ids;
  std::string text;
  std::string finish = "interrupted";
  double first_token_s = 0;  // seconds after the request was added
  double last_token_s = 0;

  [[nodiscard]] double tokens_per_s() const {
    const double seconds = last_token_s - first_token_s;
    return ids.size() > 1 && seconds > 0 ? static_cast<double>(ids.size() - 1) / seconds : 0;
  }
};

// Collects a request's text and prints it as soon as it is known.
class Writer {
 public:
  Writer(const std::optional<text::Tokenizer>& tokenizer, const Prompt& prompt,
         std::vector<std::string> stop, bool streams)
      : streams_(streams) {
    if (tokenizer)
      output_.emplace(*tokenizer, prompt.ids, text::StopRules{.strings = std::move(stop)});
  }
  void write(int32_t id, GenerateResult& result) {
    if (output_) {
      emit(output_->push(std::span(&id, 1)), result);
    } else if (streams_) {
      print(fmt::format("{}{}", result.ids.size() > 1 ? " " : "", id));
    }
  }
  [[nodiscard]] bool is_stopped() const { return output_ && output_->is_stopped(); }
  void finish(GenerateResult& result) {
    if (output_) emit(output_->finish(), result);
    if (streams_) print("\n");
  }

 private:
  void emit(const std::string& piece, GenerateResult& result) const {
    result.text += piece;
    if (streams_ && !piece.empty()) print(piece);
  }

  bool streams_;
  std::optional<text::OutputText> output_;
};

GenerateResult run(engine::Engine& engine, Writer& writer) {
  GenerateResult result;
  const InterruptScope interrupt;
  const double start = now();
  const auto on_token = [&](const engine::Generated& generated) {
    if (generated.finish == engine::Finish::kNoAdapter)
      fail(ErrorKind::kModel, "{}", generated.problem);
    result.last_token_s = now() - start;
    if (result.ids.empty()) result.first_token_s = result.last_token_s;
    result.ids.push_back(generated.token);
    if (generated.finish) result.finish = name(*generated.finish);
    writer.write(generated.token, result);
    if (writer.is_stopped()) {
      result.finish = name(engine::Finish::kStop);
      engine.abort(generated.sequence);
    }
  };
  while (!interrupt.interrupted() && engine.step(on_token)) {
  }
  writer.finish(result);
  return result;
}

json::array ids_json(const std::vector<int32_t>& ids) {
  return json::array(ids.begin(), ids.end());
}

json::object drafts_json(const engine::Engine& engine, const loader::LoadedModel& model) {
  const engine::DraftCounts& drafts = engine.draft_counts();
  const runtime::Limits& limits = model.limits();
  const std::vector<int64_t> counts = limits.draft_counts();
  return {
      {"tokens", drafts.tokens},
      {"right", drafts.num_accepted()},
      {"speculative_tokens", json::array(counts.begin(), counts.end())},
      {"max_sequences", limits.max_drafting_sequences ? json::value(*limits.max_drafting_sequences)
                                                      : json::value(nullptr)}};
}

void print_json(const Prompt& prompt, const GenerateResult& result, bool has_text,
                const engine::Engine& engine, loader::LoadedModel& model) {
  print(json::to_text(json::object{
            {"prompt_ids", ids_json(prompt.ids)},
            {"ids", ids_json(result.ids)},
            {"text", has_text ? json::value(result.text) : json::value(nullptr)},
            {"finish", result.finish},
            {"timings", json::object{{"load_s", model.load_seconds()},
                                     {"first_token_ms", result.first_token_s * 1e3},
                                     {"total_s", result.last_token_s},
                                     {"tokens_per_s", result.tokens_per_s()}}},
            {"stats",
             json::object{{"steps", measure::steps_json(engine.step_counts())},
                          {"drafts", drafts_json(engine, model)},
                          {"memory", measure::memory_json(loader::memory_plan(model))},
                          {"recordings", measure::recordings_json(model.recording_stats())}}}}) +
        "\n");
}

void print_stats(const Prompt& prompt, const GenerateResult& result, const engine::Engine& engine,
                 loader::LoadedModel& model) {
  fmt::print(stderr, "\n{}\n{}\n", measure::step_table(engine.step_counts()),
             measure::memory_table(loader::memory_plan(model)));
  fmt::print(stderr, "  {}\n", to_text(model.recording_stats()));
  if (const engine::DraftCounts& drafts = engine.draft_counts(); drafts.tokens > 0) {
    fmt::print(stderr, "  {} drafts, {} of them right ({:.0f} %)\n", drafts.tokens,
               drafts.num_accepted(), drafts.share_right() * 100);
  }
  fmt::print(stderr, "  prompt of {} tokens in {:.1f} ms; {} tokens at {:.1f} tokens/s ({})\n",
             prompt.ids.size(), result.first_token_s * 1e3, result.ids.size(),
             result.tokens_per_s(), result.finish);
}

// Removes the line end that `echo` and editors add.
std::string without_line_end(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// Generates texts for many prompts, or many texts for one prompt.
void generate_all(const GenerateOptions& options, std::string path) {
  PromptDefaults defaults{.n = options.n,
                          .max_tokens = options.max_tokens,
                          .sampling = options.sampling,
                          .stop = options.stop,
                          .ignore_eos = options.ignore_eos,
                          .adapter = options.adapter};
  if (path.empty()) {
    defaults.text = options.prompt.empty() ? kDefaultPrompt : options.prompt;
    if (!options.prompt_ids.empty()) defaults.ids = parse_ids(options.prompt_ids, "--prompt-ids");
  }
  generate_prompts({.settings = options.settings,
                    .path = std::move(path),
                    .defaults = std::move(defaults),
                    .stats = options.stats});
}

void generate(GenerateOptions options) {
  if (const auto problem = sample::problem(options.sampling))
    fail(ErrorKind::kUsage, "{}", *problem);
  if (!options.prompts.empty() || options.n > 1) return generate_all(options, options.prompts);
  const bool is_default_prompt = options.prompt.empty() && options.prompt_ids.empty();
  if (is_default_prompt && is_input_piped()) {
    options.prompt = without_line_end(read_input("-"));
    if (options.prompt.empty()) fail(ErrorKind::kUsage, "what is piped in as the prompt is empty");
  }
  const sample::SamplingParams& sampling = options.sampling;
  if (sampling.temperature == 0 && (sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0))
    log::info("--top-k, --top-p and --min-p have no effect at --temperature 0");
  const model::ModelSource source = setup::open_source(options.settings);
  const std::optional<text::Tokenizer> tokenizer = read_tokenizer(options, source);
  const Prompt prompt = read_prompt(options, source.config, tokenizer);
  const auto prompt_tokens = static_cast<int64_t>(prompt.ids.size());
  if (prompt_tokens == 0) fail(ErrorKind::kUsage, "the prompt is empty");

  engine::Request request{.prompt = prompt.ids,
                          .max_tokens = options.max_tokens.value_or(setup::default_max_tokens(
                              prompt_tokens, setup::longest_text(options.settings, source.config))),
                          .sampling = options.sampling,
                          .adapter = options.adapter};
  check_request(request, source.config, options.settings);
  if (!options.ignore_eos) request.stop_tokens = source.config.eos_token_ids;
  loader::LoadOptions load = setup::load_options(options.settings);
  setup::use_adapter(options.adapter, load.adapters);
  load.window_pages = options.settings.window_pages;
  load.limits.max_seq_len =
      setup::sequence_limit(options.settings, source.config, prompt_tokens + request.max_tokens);
  set_sizes(options, prompt_tokens, load);

  const auto step_log = setup::open_step_log(options.settings);
  const std::unique_ptr<Device> device = setup::open_device(options.settings);
  const auto loaded = setup::open_model(*device, source, load, options.settings);
  if (const auto why = setup::missing_tokenizer(source)) log::warning("{}", *why);
  loader::LoadedModel& model = *loaded;
  engine::Engine engine(model, setup::engine_options(options.settings, step_log.get()));
  const auto added = engine.add(std::move(request));
  if (const auto* rejection = std::get_if<engine::Rejection>(&added)) {
    fail(ErrorKind::kUsage, "{}", rejection->why);
  }

  const bool is_default = options.prompt.empty() && options.prompt_ids.empty();
  if (!options.json && tokenizer && (options.echo || is_default)) print(prompt.text);
  Writer writer(tokenizer, prompt, options.stop, !options.json);
  const GenerateResult result = run(engine, writer);
  if (step_log) step_log->flush();
  if (options.json) print_json(prompt, result, tokenizer.has_value(), engine, model);
  if (options.stats) print_stats(prompt, result, engine, model);
  if (result.finish == "interrupted") throw Interrupted();
}

}  // namespace

void add_generate(Command& app) {
  Command* verb = app.add_subcommand("generate", "Text from a prompt, streamed as it comes");
  auto options =
      std::make_shared<GenerateOptions>();  // shared by the parser's options and the callback
  auto* prompt =
      verb->add_option("-p,--prompt,PROMPT", options->prompt,
                       "What to continue. Default: what is piped in, else \"Once upon a time\"");
  verb->add_option(
          "--prompt-ids", options->prompt_ids,
          "The prompt as token ids: 1,2,3. Needs no tokenizer; synthetic models take random ids")
      ->type_name("IDS")
      ->excludes(prompt);
  verb->add_option("--prompts", options->prompts,
                   "A file of prompts, one a line, text or JSON; -: standard input")
      ->type_name("FILE")
      ->excludes(prompt);
  verb->add_option("-n", options->n, "Texts to generate for each prompt, as JSON lines")
      ->range(int64_t{1}, int64_t{1024})
      ->capture_default_str();
  verb->add_option("--stop", options->stop,
                   "Ends the text where it comes up; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  verb->add_option(
          "--max-tokens", options->max_tokens,
          fmt::format("Tokens to generate at most. Default: {}, or what the model still has "
                      "room for",
                      setup::kDefaultMaxTokens))
      ->range(int64_t{1}, int64_t{1} << 30)
      ->type_name("N");
  add_sampling_options(*verb, options->sampling);
  verb->add_option("--adapter", options->adapter,
                   "The adapter (LoRA) that generates: a name of --lora, or the directory of one")
      ->type_name("NAME|PATH");
  verb->add_flag("--ignore-eos", options->ignore_eos, "Go on when the model ends its text");
  verb->add_flag("--echo", options->echo, "Print the prompt before the text");
  verb->add_flag("--stats", options->stats,
                 "Steps by mode, bucket and padding, memory and speed, on stderr");
  add_json_flag(*verb, options->json);
  verb->group("Prompts: what is continued, how often, and to which end",
              {"--adapter", "--prompt-ids", "--prompts", "-n", "--stop", "--ignore-eos"});
  verb->group("Output: what is printed besides the text", {"--echo", "--stats"});
  take_options(*verb, options->settings, running_options());
  verb->footer(kGenerateFooter);
  verb->callback([options] { generate(*options); });
}

}  // namespace encore::cli
