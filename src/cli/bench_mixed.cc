// encore bench mixed: what a prompt's chunk costs the sequences that decode beside it.
#include <algorithm>

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

constexpr const char* kFooter =
    R"(One step that reads PROMPT-TOKENS of a prompt while DECODES sequences take a token each after CONTEXT others, again and
again, by turns with its parts: `prompt`, a step with a prompt of as many tokens as the mixed step has, and `decode`,
one without the prompt. Medians over the turns, by the host's clock. `attention` is what the decodes' attention takes,
launched alone, in all layers. So `of parts`, the mixed step over prompt and attention, is 1 where sequences that decode
cost a prompt's step no more than the reading of their KV, and `delay` is what a token of theirs waits for the prompt.

  encore bench mixed --model synthetic:llama-3.1-8b --prompt-tokens 480 --decodes 31 --context 4096)";

struct Options {
  BenchOptions bench;  // batch: sequences that decode
  int64_t prompt_tokens = 480;

  [[nodiscard]] int64_t decodes() const { return bench.batch; }
  [[nodiscard]] int64_t tokens() const { return prompt_tokens + decodes(); }
};

engine::LoadOptions load_options(const Options& options) {
  engine::LoadOptions load = setup::load_options(options.bench.settings);
  load.record_all_modes = !options.bench.settings.graphs;
  const int64_t sequences = options.decodes() + 1;
  load.limits.max_batch_size = sequences;
  load.limits.max_num_tokens = options.tokens();
  load.sequences = runtime::Ladder({options.decodes(), sequences});
  load.tokens = runtime::Ladder({options.tokens()});
  load.kv_tokens = options.decodes() * (options.bench.context + 2 * load.page_size) +
                   options.tokens() + load.page_size;
  return load;
}

// A kind of step that is timed by turns with others. Units: microseconds.
struct Timed {
  diagnose::TrialStep step;
  std::vector<double> turns_us;
  std::string ran_as;

  [[nodiscard]] double us() const { return median(turns_us); }

  // As long as the device's clocks need to settle, unless one step takes longer.
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

struct ModeResult {
  std::string mode;
  Timed mixed;
  Timed prompt;
  Timed decode;
};

ModeResult run_mode(Bench& bench, measure::FilledKv& kv, const Options& options,
                    runtime::Graphs graphs) {
  bench.model->executor().set_graphs(graphs);
  const int64_t context = options.bench.context;
  ModeResult result{std::string(mode_name(graphs)),
                    {kv.step(options.decodes(), context, options.prompt_tokens), {}, {}},
                    {kv.step(0, 0, options.tokens()), {}, {}},
                    {kv.step(options.decodes(), context), {}, {}}};
  const int runs = options.bench.runs.value_or(bench.device->kind() == DeviceKind::kCpu ? 3 : 5);
  for (int i = 0; i < runs; ++i) {
    for (Timed* timed : {&result.mixed, &result.prompt, &result.decode})
      timed->take_turn(kv);
  }
  return result;
}

// Of the decodes, in all layers. Units: microseconds.
double attention_us(Bench& bench, const Options& options) {
  const engine::LoadedModel& model = *bench.model;
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
  return timer.time(c, runs).chain_us * static_cast<double>(config.num_layers);
}

void bench_mixed(const Options& options) {
  using runtime::Graphs;
  const int64_t longest = std::max(options.bench.context + 2, options.tokens());
  Bench bench = open_bench(options.bench, load_options(options), longest);
  measure::FilledKv kv(*bench.model);
  const double attention = attention_us(bench, options);

  Table table({"mode", "ran", "mixed ms", "prompt ms", "decode ms", "attention ms", "of parts",
               "delay ms"});
  json::array rows;
  for (const Graphs graphs :
       bench_modes(options.bench, {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull})) {
    const ModeResult result = run_mode(bench, kv, options, graphs);
    const double mixed = result.mixed.us();
    const double of_parts = mixed / (result.prompt.us() + attention);
    const double delay = mixed - result.decode.us();
    std::vector<std::string> cells{result.mode, result.mixed.ran_as};
    for (const double us : {mixed, result.prompt.us(), result.decode.us(), attention})
      cells.push_back(fmt::format("{:.3f}", us / 1e3));
    cells.push_back(fmt::format("{:.3f}", of_parts));
    cells.push_back(fmt::format("{:.3f}", delay / 1e3));
    table.add(cells);
    rows.push_back(json::object{{"mode", result.mode},
                                {"ran", result.mixed.ran_as},
                                {"mixed_ms", mixed / 1e3},
                                {"prompt_ms", result.prompt.us() / 1e3},
                                {"decode_ms", result.decode.us() / 1e3},
                                {"attention_ms", attention / 1e3},
                                {"of_parts", of_parts},
                                {"delay_ms", delay / 1e3}});
  }
  if (options.bench.json) {
    json::object out = bench_json("mixed", options.bench, bench);
    out["prompt_tokens"] = options.prompt_tokens;
    out["modes"] = std::move(rows);
    return print(json::to_text(out) + "\n");
  }
  print(bench_title(fmt::format("mixed, {} tokens of a prompt", options.prompt_tokens),
                    options.bench, bench) +
        table.text());
}

}  // namespace

void add_bench_mixed(Command& bench) {
  Command* verb =
      bench.add_subcommand("mixed", "What a prompt's chunk costs sequences that decode beside it");
  auto options = std::make_shared<Options>();  // shared by the parser's options and the callback
  verb->add_option("--prompt-tokens", options->prompt_tokens, "Tokens of the prompt in the step")
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
  add_runs_option(*verb, options->bench);
  add_json_flag(*verb, options->bench.json);
  using config::Group;
  // The sizes of the step are given: neither ladders nor limits.
  take_options(*verb, options->bench.settings,
               {.groups = {Group::kModel, Group::kDevice, Group::kGraphs, Group::kRecording,
                           Group::kCompiler, Group::kDiagnosis}});
  verb->footer(kFooter);
  verb->callback([options] { bench_mixed(*options); });
}

}  // namespace encore::cli
