// Implements `encore bench mixed`, which measures how much a prompt's chunk slows the sequences
// that decode in the same step.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/statistics.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"
#include "measure/attention_timer.h"
#include "measure/decoding.h"
#include "measure/timing.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr const char* kBenchMixedFooter =
    R"(One step that reads N tokens of a prompt while DECODES sequences take a token each after CONTEXT others, again and
again, by turns with its parts and with the other modes: `prompt`, a step with a prompt of as many tokens as the mixed
step has, and `decode`, one without the prompt. Medians over the turns, by the host's clock; `of eager` is the mixed
step's beside that of the first mode. `attention` is what the decodes' attention takes, launched alone, in all layers. So
`of parts`, the mixed step over prompt and attention, is 1 where sequences that decode cost a prompt's step no more than
the reading of their KV, and `delay` is what a token of theirs waits for the prompt.

  encore bench mixed --model synthetic:llama-3.1-8b --prompt-tokens 480 --decodes 31 --context 4096
  encore bench mixed --model synthetic:llama-3.1-8b --prompt-tokens 256,512,1024,2048 --decodes 8 --context 1024)";

struct BenchMixedOptions {
  BenchOptions bench;  // its `batch` counts the sequences that decode
  std::vector<int64_t> prompt_tokens{480};

  [[nodiscard]] int64_t decodes() const { return bench.batch; }
  // Returns the tokens of the largest step: the longest prompt, and one token for each sequence
  // that decodes.
  [[nodiscard]] int64_t most_tokens() const {
    return *std::max_element(prompt_tokens.begin(), prompt_tokens.end()) + decodes();
  }
};

loader::LoadOptions load_options(const BenchMixedOptions& options) {
  loader::LoadOptions load = setup::load_options(options.bench.settings);
  load.record_all_modes = !options.bench.settings.graphs;
  const int64_t sequences = options.decodes() + 1;
  load.limits.max_batch_size = sequences;
  load.limits.max_num_tokens = options.most_tokens();
  load.sequences = runtime::Ladder({options.decodes(), sequences});
  std::vector<int64_t> sizes;
  for (const int64_t prompt_tokens : options.prompt_tokens)
    sizes.push_back(prompt_tokens + options.decodes());
  load.tokens = runtime::Ladder(std::move(sizes));
  load.kv_tokens = options.decodes() * (options.bench.context + 2 * load.page_size) +
                   options.most_tokens() + load.page_size;
  return load;
}

// Holds one kind of step and its times; several kinds are timed in turn. Units: microseconds.
struct Timed {
  diagnose::TrialStep step;
  std::vector<double> turns_us;
  std::string ran_as;

  [[nodiscard]] double us() const { return median(turns_us); }

  // Runs steps for at least 0.1 s, in which the device's clocks settle, and at least three steps;
  // adds their mean time.
  void take_turn(measure::FilledKv& kv) {
    constexpr double kTurnSeconds = 0.1;
    constexpr int kFewest = 3;
    measure::RepeatedStep repeated(kv, step);
    repeated.step();
    repeated.step();
    const double start = measure::now_seconds();
    double end = start;
    int count = 0;
    for (; count < kFewest || end - start < kTurnSeconds; ++count) {
      repeated.step();
      end = measure::now_seconds();
    }
    turns_us.push_back((end - start) * 1e6 / count);
    ran_as = name(repeated.choice().mode);
  }
};

// Holds the steps of one prompt size in one mode: with prompt and decodes, with the prompt alone,
// with decodes alone.
struct MixedResult {
  int64_t prompt_tokens;
  runtime::Graphs graphs;
  Timed mixed;
  Timed prompt;
  Timed decode;
};

// Times all prompt sizes one after the other; at each size, all modes and kinds of steps take
// turns.
std::vector<MixedResult> run_all(Bench& bench, measure::FilledKv& kv,
                                 const BenchMixedOptions& options,
                                 const std::vector<runtime::Graphs>& modes) {
  const int64_t context = options.bench.context;
  const int runs =
      options.bench.runs.value_or(static_cast<int>(kBenchRuns.on(bench.device->kind())));
  std::vector<MixedResult> results;
  for (const int64_t prompt_tokens : options.prompt_tokens) {
    const size_t first = results.size();
    for (const runtime::Graphs graphs : modes) {
      results.push_back({prompt_tokens,
                         graphs,
                         {kv.step(options.decodes(), context, prompt_tokens), {}, {}},
                         {kv.step(0, 0, prompt_tokens + options.decodes()), {}, {}},
                         {kv.step(options.decodes(), context), {}, {}}});
    }
    for (int i = 0; i < runs; ++i) {
      for (size_t mode = first; mode < results.size(); ++mode) {
        MixedResult& result = results[mode];
        bench.model->executor().set_graphs(result.graphs);
        for (Timed* timed : {&result.mixed, &result.prompt, &result.decode})
          timed->take_turn(kv);
      }
    }
  }
  return results;
}

// Returns the time of the decoding sequences' attention, over all layers. Units: microseconds.
double attention_us(Bench& bench, const BenchMixedOptions& options) {
  const loader::LoadedModel& model = *bench.model;
  const model::ModelConfig& config = model.config();
  const int64_t tokens = options.bench.context + 1;
  measure::AttentionShape shape;
  shape.dtype = model.dtype();
  shape.kv_dtype = model.kv_dtype();
  shape.heads = config.num_heads;
  shape.kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.page_size = model.page_size();
  shape.max_context = model.limits().max_seq_len;
  shape.rope = true;
  const measure::AttentionCase c{
      "decodes", std::vector<int64_t>(static_cast<size_t>(options.decodes()), tokens)};
  measure::AttentionTimer timer(shape, *bench.device, {c});
  const int runs = measure::num_replays(options.bench.runs, *bench.device);
  return timer.time(c, runs).chain_us * static_cast<double>(config.num_layers());
}

void bench_mixed(const BenchMixedOptions& options) {
  using runtime::Graphs;
  const int64_t longest = std::max(options.bench.context + 2, options.most_tokens());
  Bench bench = open_bench(options.bench, load_options(options), longest);
  measure::FilledKv kv(*bench.model);
  const double attention = attention_us(bench, options);

  Table table({"prompt", "mode", "ran", "mixed ms", "of eager", "prompt ms", "decode ms",
               "attention ms", "of parts", "delay ms"});
  json::array rows;
  const std::vector<Graphs> modes =
      bench_modes(options.bench, {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull});
  const std::vector<MixedResult> results = run_all(bench, kv, options, modes);
  for (size_t i = 0; i < results.size(); ++i) {
    const MixedResult& result = results[i];
    const MixedResult& of_first_mode = results[i - i % modes.size()];
    const double mixed = result.mixed.us();
    std::optional<double> of_eager;
    if (of_first_mode.graphs == Graphs::kNone) of_eager = mixed / of_first_mode.mixed.us();
    const double of_parts = mixed / (result.prompt.us() + attention);
    const double delay = mixed - result.decode.us();
    const auto ms = [](double us) { return fmt::format("{:.3f}", us / 1e3); };
    table.add({std::to_string(result.prompt_tokens), std::string(mode_name(result.graphs)),
               result.mixed.ran_as, ms(mixed), of_eager ? fmt::format("{:.3f}", *of_eager) : "-",
               ms(result.prompt.us()), ms(result.decode.us()), ms(attention),
               fmt::format("{:.3f}", of_parts), ms(delay)});
    rows.push_back(json::object{{"prompt_tokens", result.prompt_tokens},
                                {"mode", mode_name(result.graphs)},
                                {"ran", result.mixed.ran_as},
                                {"mixed_ms", mixed / 1e3},
                                {"of_eager", of_eager ? json::value(*of_eager) : nullptr},
                                {"prompt_ms", result.prompt.us() / 1e3},
                                {"decode_ms", result.decode.us() / 1e3},
                                {"attention_ms", attention / 1e3},
                                {"of_parts", of_parts},
                                {"delay_ms", delay / 1e3}});
  }
  if (options.bench.json) {
    json::object out = bench_json("mixed", options.bench, bench);
    out["modes"] = std::move(rows);
    return print(json::to_text(out) + "\n");
  }
  print(bench_title("mixed", options.bench, bench) + table.text());
}

}  // namespace

void add_bench_mixed(Command& bench) {
  Command* verb =
      bench.add_subcommand("mixed", "What a prompt's chunk costs sequences that decode beside it");
  auto options =
      std::make_shared<BenchMixedOptions>();  // shared by the parser's options and the callback
  verb->add_option("--prompt-tokens", options->prompt_tokens,
                   "Tokens of the prompt in the step, or several sizes, such as 256,512")
      ->delimiter(',')
      ->range(int64_t{1}, int64_t{65536})
      ->type_name("N")
      ->capture_default_str();
  options->bench.batch = 31;
  options->bench.context = 4096;
  verb->add_option("--decodes", options->bench.batch, "Sequences that take a token, 1 to 4095")
      ->range(int64_t{1}, int64_t{4095})
      ->type_name("B")
      ->capture_default_str();
  verb->add_option("--context", options->bench.context, "Tokens that each of them has")
      ->range(int64_t{1}, int64_t{1} << 24)
      ->type_name("C")
      ->capture_default_str();
  add_runs_option(*verb, options->bench, kBenchRuns);
  add_json_flag(*verb, options->bench.json);
  using config::Group;
  // The command line gives the exact sizes of the step, so the verb takes neither ladders nor
  // limits.
  take_options(*verb, options->bench.settings,
               {.groups = {Group::kModel, Group::kDevice, Group::kGraphs, Group::kRecording,
                           Group::kCompiler, Group::kDiagnosis}});
  verb->footer(kBenchMixedFooter);
  verb->callback([options] { bench_mixed(*options); });
}

}  // namespace encore::cli
