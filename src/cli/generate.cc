// encore generate: text from a prompt, streamed as it comes.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/open.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "engine/engine.h"

namespace encore::cli {
namespace {

constexpr const char* kDefaultPrompt = "Once upon a time";
constexpr int64_t kDefaultMaxTokens = 200;
constexpr int64_t kDefaultMaxNumTokens = 2048;
constexpr int64_t kRandomPromptTokens = 16;

constexpr const char* kFooter =
    R"(stdout has the generated text alone; without a tokenizer, the ids. --json prints one object:
  prompt_ids, ids, text (null without a tokenizer), finish (stop, length, interrupted),
  timings {load_s, first_token_ms, total_s, tokens_per_s}
  stats {steps [{mode, bucket_tokens, bucket_sequences, q, reason, steps, tokens, padding}],
         memory {weights, kv, arena, arena_without_reuse, step_inputs, scratch},
         recordings {full {recordings, executables, nodes, capture_ms, instantiate_ms}, pieces {...},
                     lower_ms}}
tokens_per_s counts from the first token to the last; first_token_ms is what the prompt took.)";

struct Options {
  CommonOptions common;
  std::string prompt;
  std::string prompt_ids;
  std::optional<int64_t> max_tokens;
  sample::SamplingParams sampling;
  bool ignore_eos = false;
  bool echo = false;
  std::string step_log;
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

Prompt read_prompt(const Options& options, const model::ModelConfig& config,
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

// A prompt needs its ids only; a tokenizer that cannot be read is then no reason to stop.
std::optional<text::Tokenizer> read_tokenizer(const Options& options,
                                              const engine::ModelSource& source) {
  try {
    return open_tokenizer(source);
  } catch (const Error& error) {
    if (options.prompt_ids.empty()) throw;
    log::warning("no text, only ids: {}", error.what());
    return std::nullopt;
  }
}

// Tokens to generate: as asked, or as many of the default as the model has positions for.
int64_t max_tokens(const Options& options, const model::ModelConfig& config, const Prompt& prompt) {
  if (options.max_tokens) return *options.max_tokens;
  const int64_t longest = options.common.max_seq_len.value_or(longest_sequence(config));
  return std::max<int64_t>(
      1, std::min(kDefaultMaxTokens, longest - static_cast<int64_t>(prompt.ids.size())));
}

// What the engine would refuse, before the weights are loaded.
void check_request(const engine::Request& request, const model::ModelConfig& config,
                   const CommonOptions& common) {
  for (const int32_t id : request.prompt) {
    if (id >= config.vocab_size) {
      fail(ErrorKind::kUsage, "token {} is outside the vocabulary of {}", id, config.vocab_size);
    }
  }
  const int64_t needed = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (common.kv_tokens && needed > *common.kv_tokens) {
    fail(ErrorKind::kUsage,
         "a prompt of {} tokens and {} to generate do not fit --kv-tokens {}: raise it to {}",
         request.prompt.size(), request.max_tokens, *common.kv_tokens, needed);
  }
}

// Ladders of just the sizes that this one request passes through, so that starting is quick. They
// are sizes of the default ladders, and so the tokens are those that a server would give.
void set_sizes(const Options& options, int64_t prompt_tokens, engine::LoadOptions& load) {
  const int64_t most = options.common.max_num_tokens.value_or(kDefaultMaxNumTokens);
  const runtime::Ladder ladder = runtime::Ladder::tokens(most);
  std::vector<int64_t> sizes{*ladder.bucket(std::min(prompt_tokens, most))};
  const int64_t rest = prompt_tokens % most;
  if (prompt_tokens > most && rest > 0) sizes.push_back(*ladder.bucket(rest));
  load.tokens = runtime::Ladder(sizes);
  load.limits.max_batch_size = options.common.max_batch_size.value_or(1);
  load.limits.max_num_tokens = options.common.max_num_tokens.value_or(
      options.common.token_ladder.empty()
          ? std::max(load.tokens.sizes().back(), load.limits.max_batch_size)
          : std::max(kDefaultMaxNumTokens, load.limits.max_batch_size));
  set_ladders(options.common, load);
}

// What came out of it.
struct Result {
  std::vector<int32_t> ids;
  std::string text;
  std::string finish = "interrupted";
  double first_token_s = 0;  // after the request was added
  double last_token_s = 0;

  [[nodiscard]] double tokens_per_s() const {
    const double seconds = last_token_s - first_token_s;
    return ids.size() > 1 && seconds > 0 ? static_cast<double>(ids.size() - 1) / seconds : 0;
  }
};

// Writes text as soon as it is known.
class Writer {
 public:
  Writer(const std::optional<text::Tokenizer>& tokenizer, bool streams) : streams_(streams) {
    if (tokenizer) detokenizer_.emplace(*tokenizer);
  }
  void write(int32_t id, Result& result) {
    if (detokenizer_) {
      emit(detokenizer_->push(id), result);
    } else if (streams_) {
      print(fmt::format("{}{}", result.ids.size() > 1 ? " " : "", id));
    }
  }
  void finish(Result& result) {
    if (detokenizer_) emit(detokenizer_->finish(), result);
    if (streams_) print("\n");
  }

 private:
  void emit(const std::string& piece, Result& result) const {
    result.text += piece;
    if (streams_ && !piece.empty()) print(piece);
  }

  bool streams_;
  std::optional<text::Detokenizer> detokenizer_;
};

Result run(engine::Engine& engine, Writer& writer) {
  Result result;
  const InterruptScope interrupt;
  const double start = now();
  const auto on_token = [&](const engine::Generated& generated) {
    result.last_token_s = now() - start;
    if (result.ids.empty()) result.first_token_s = result.last_token_s;
    result.ids.push_back(generated.token);
    if (generated.finish) result.finish = name(*generated.finish);
    writer.write(generated.token, result);
  };
  while (!interrupt.interrupted() && engine.step(on_token)) {
  }
  writer.finish(result);
  return result;
}

json::array ids_json(const std::vector<int32_t>& ids) {
  return json::array(ids.begin(), ids.end());
}

void print_json(const Prompt& prompt, const Result& result, bool has_text,
                const engine::Engine& engine, engine::LoadedModel& model) {
  print(to_text(json::object{
            {"prompt_ids", ids_json(prompt.ids)},
            {"ids", ids_json(result.ids)},
            {"text", has_text ? json::value(result.text) : json::value(nullptr)},
            {"finish", result.finish},
            {"timings", json::object{{"load_s", model.load_seconds()},
                                     {"first_token_ms", result.first_token_s * 1e3},
                                     {"total_s", result.last_token_s},
                                     {"tokens_per_s", result.tokens_per_s()}}},
            {"stats", json::object{{"steps", steps_json(engine.step_counts())},
                                   {"memory", memory_json(model.memory_plan())},
                                   {"recordings", recordings_json(model.recording_stats())}}}}) +
        "\n");
}

void print_stats(const Prompt& prompt, const Result& result, const engine::Engine& engine,
                 engine::LoadedModel& model) {
  fmt::print(stderr, "\n{}\n{}\n", step_table(engine.step_counts()),
             memory_table(model.memory_plan()));
  fmt::print(stderr, "  {}\n", recordings_text(model.recording_stats()));
  fmt::print(stderr, "  prompt of {} tokens in {:.1f} ms; {} tokens at {:.1f} tokens/s ({})\n",
             prompt.ids.size(), result.first_token_s * 1e3, result.ids.size(),
             result.tokens_per_s(), result.finish);
}

void generate(const Options& options) {
  if (const auto problem = sample::problem(options.sampling))
    fail(ErrorKind::kUsage, "{}", *problem);
  const engine::ModelSource source = open_source(options.common);
  const std::optional<text::Tokenizer> tokenizer = read_tokenizer(options, source);
  const Prompt prompt = read_prompt(options, source.config, tokenizer);
  const auto prompt_tokens = static_cast<int64_t>(prompt.ids.size());
  if (prompt_tokens == 0) fail(ErrorKind::kUsage, "the prompt is empty");

  engine::Request request{
      prompt.ids, max_tokens(options, source.config, prompt), options.sampling, {}};
  check_request(request, source.config, options.common);
  if (!options.ignore_eos) request.stop_tokens = source.config.eos_token_ids;
  engine::LoadOptions load = load_options(options.common);
  load.limits.max_seq_len =
      sequence_limit(options.common, source.config, prompt_tokens + request.max_tokens);
  set_sizes(options, prompt_tokens, load);

  const auto step_log = open_step_log(options.step_log);
  const std::unique_ptr<Device> device = open_device(options.common);
  engine::LoadedModel model(*device, source, load);
  log_start_up(model, *device);
  engine::Engine engine(model, engine_options(options.common, step_log.get()));
  const auto added = engine.add(std::move(request));
  if (const auto* rejection = std::get_if<engine::Rejection>(&added)) {
    fail(ErrorKind::kUsage, "{}", rejection->why);
  }

  const bool is_default = options.prompt.empty() && options.prompt_ids.empty();
  if (!options.json && tokenizer && (options.echo || is_default)) print(prompt.text);
  Writer writer(tokenizer, !options.json);
  const Result result = run(engine, writer);
  if (step_log) step_log->flush();
  if (options.json) print_json(prompt, result, tokenizer.has_value(), engine, model);
  if (options.stats) print_stats(prompt, result, engine, model);
  if (result.finish == "interrupted") throw Interrupted();
}

void add_sampling_options(CLI::App& verb, sample::SamplingParams& sampling) {
  verb.add_option("--temperature", sampling.temperature,
                  "Divides the logits, 0 or more; 0 takes the most likely token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb.add_option("--top-k", sampling.top_k, "Sample among the k most likely tokens; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->type_name("K")
      ->capture_default_str();
  verb.add_option("--top-p", sampling.top_p,
                  "Sample among the most likely tokens whose probabilities reach p, above 0 to 1")
      ->type_name("P")
      ->capture_default_str();
  verb.add_option(
          "--min-p", sampling.min_p,
          "Sample among tokens at least p times as likely as the most likely one, 0 to below 1")
      ->type_name("P")
      ->capture_default_str();
  verb.add_option("--seed", sampling.seed,
                  "Seed of the sampling; the same seed gives the same tokens")
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "Text from a prompt, streamed as it comes");
  auto options = std::make_shared<Options>();  // shared by the parser's options and the callback
  add_model_option(*verb, options->common);
  auto* prompt = verb->add_option("--prompt", options->prompt,
                                  "What to continue. Default: \"Once upon a time\"");
  verb->add_option(
          "--prompt-ids", options->prompt_ids,
          "The prompt as token ids: 1,2,3. Needs no tokenizer; synthetic models take random ids")
      ->type_name("IDS")
      ->excludes(prompt);
  verb->add_option("--max-tokens", options->max_tokens,
                   "Tokens to generate at most. Default: 200, or what the model still has room for")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->type_name("N");
  add_sampling_options(*verb, options->sampling);
  verb->add_flag("--ignore-eos", options->ignore_eos, "Go on when the model ends its text");
  verb->add_flag("--echo", options->echo, "Print the prompt before the text");
  add_device_options(*verb, options->common);
  add_graphs_option(*verb, options->common);
  add_recording_options(*verb, options->common);
  add_loop_options(*verb, options->common);
  add_dtype_option(*verb, options->common);
  add_size_options(*verb, options->common);
  add_ladder_options(*verb, options->common);
  add_pass_options(*verb, options->common);
  add_config_options(*verb, options->common.config);
  add_step_log_option(*verb, options->step_log);
  verb->add_flag("--stats", options->stats,
                 "Steps by mode, bucket and padding, memory and speed, on stderr");
  add_json_flag(*verb, options->json);
  verb->footer(kFooter);
  verb->callback([options, verb] {
    apply_config(*verb, options->common.config);
    generate(*options);
  });
}

}  // namespace encore::cli
