// Implements `encore bench stack`, which measures how much each optimization of decoding adds to
// those before it.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/bench_acceptance.h"
#include "cli/command.h"
#include "cli/output.h"
#include "measure/forced_acceptance.h"
#include "measure/speculation.h"
#include "measure/step_allocations.h"
#include "setup/open.h"

namespace encore::cli {
namespace {

constexpr const char* kBenchStackFooter =
    R"(Times decode steps of a batch of sequences, with one optimization more in each row:
  eager         every launch by itself, and every buffer of a step allocated anew in front of the launch that writes it
                (by an allocator that keeps what is freed, as other engines' do)
  persistent    eager, with buffers that are planned once and stay
  recording     the step as one recording (CUDA graph), which needs persistent buffers
  speculation   K drafts a step, in the same recording, by a head of one layer with random weights or by --draft-model; they
                are right with probability A if those in front of them are
  FP8           that, with projections in FP8
A row whose model does not fit the device's memory is left empty.

ms/token is the time between two tokens of a sequence: that of a step over the tokens that it gives each. The published
figures are those of Llama 70B in 16 bits on an H100, batch 64, in PyTorch; they add graphs (40.2 ms) before persistent
buffers, and 40.2 to 38.8 ms is what allocating takes there.

  encore bench stack --model synthetic:llama-3.1-70b
  encore bench stack --model stories --batches 1,8 --json)";

// The batch and the time of eager steps in the published measurements (Llama 70B in 16 bits on an
// H100). Units: milliseconds per token.
constexpr int64_t kPublishedBatch = 64;
constexpr double kPublishedEagerMs = 48.5;

struct BenchStackOptions {
  BenchOptions bench{.context = 128};
  std::vector<int64_t> batches = {64, 1};
  int64_t num_drafts = 5;
  std::string acceptance = "0.8";
  std::optional<int64_t> steps;
  int64_t warmup_tokens = 9;
};

// Holds one row of the table that this verb prints. A row has all optimizations of the rows before
// it, and one more.
struct StackRow {
  std::string name;
  std::optional<double> published_ms;
  // The times of the row's steps. Absent where the model does not fit in the device's memory, and
  // in the FP8 row of a checkpoint that is quantized already.
  std::optional<measure::TimedSteps> steps;
};

std::optional<double> ms_per_token(const StackRow& row) {
  if (!row.steps) return std::nullopt;
  return row.steps->step_ms / row.steps->tokens_per_step;
}

struct StackResult {
  int64_t batch = 0;
  std::vector<StackRow> rows;
  int64_t num_buffers = 0;  // buffers that the first row allocates in a step
};

// Returns a draft model of one layer with the sizes of another model, and with at most the first
// 32000 tokens of its vocabulary.
model::ModelSource one_layer_head(model::ModelConfig config) {
  constexpr int64_t kMostTokens = 32000;
  config.layers.resize(1);
  config.layers[0].mlp = model::MlpKind::kDense;
  config.experts.reset();
  config.vocab_size = std::min(config.vocab_size, kMostTokens);
  return {std::move(config), std::nullopt};
}

constexpr measure::ByDevice kStackRuns{.gpu = 3, .cpu = 3};
constexpr measure::ByDevice kStackSteps{.gpu = 64, .cpu = 16};

// Measures the rows of one batch size on one device.
class Stack {
 public:
  Stack(const BenchStackOptions& options, int64_t batch)
      : options_(options), bench_options_(options.bench) {
    bench_options_.batch = batch;
    bench_options_.settings.auto_drafts = false;  // the number of drafts is given
  }

  StackResult run() {
    StackResult result{.batch = bench_options_.batch};
    std::vector<StackRow>& rows = result.rows;
    rows = {{"eager", kPublishedEagerMs, {}},
            {"+ persistent buffers", {}, {}},
            {"+ recording (CUDA graph)", 38.8, {}},
            {fmt::format("+ speculation (K {}, A {})", options_.num_drafts, options_.acceptance),
             15.1,
             {}},
            {"+ FP8", 8.2, {}}};
    if (open(load_options(0))) {
      measure::StepAllocations allocations(*bench_.device, bench_.model->program(),
                                           StepKey::uniform(result.batch).sizes());
      result.num_buffers = allocations.num_buffers();
      runtime::Executor& executor = bench_.model->executor();
      executor.hooks().before = [&](runtime::Executor&) { allocations.run(); };
      rows[0].steps = time(runtime::Graphs::kNone);
      executor.hooks().before = nullptr;
      rows[1].steps = time(runtime::Graphs::kNone);
      rows[2].steps = time(runtime::Graphs::kFull);
    }
    loader::LoadOptions drafting = load_options(options_.num_drafts);
    if (open(drafting)) rows[3].steps = time(runtime::Graphs::kFull);
    drafting.formats.quantize = true;
    if (!is_quantized() && open(drafting)) rows[4].steps = time(runtime::Graphs::kFull);
    return result;
  }
  [[nodiscard]] const std::string& title() const { return title_; }
  [[nodiscard]] const json::object& head() const { return head_; }
  [[nodiscard]] int64_t num_steps() const { return decoding().steps; }

 private:
  [[nodiscard]] bool is_quantized() const {
    return setup::open_source(bench_options_.settings).config.quantization.has_value();
  }
  [[nodiscard]] measure::DecodingOptions decoding() const {
    return {.batch = bench_options_.batch,
            .context = bench_options_.context,
            .warmup_tokens = options_.warmup_tokens,
            .steps = options_.steps.value_or(bench_.device == nullptr
                                                 ? kStackSteps.gpu
                                                 : kStackSteps.on(bench_.device->kind()))};
  }
  [[nodiscard]] loader::LoadOptions load_options(int64_t num_drafts) const {
    loader::LoadOptions load = decode_load_options(bench_options_);
    load.record_all_modes = num_drafts == 0;
    load.limits.num_drafts = num_drafts;
    load.limits.fewer_drafts.clear();
    load.limits.max_num_tokens =
        std::max(load.limits.max_num_tokens, load.limits.max_batch_size * (1 + num_drafts));
    load.tokens = runtime::Ladder({load.limits.max_num_tokens});
    if (num_drafts == 0) return load;
    load.compile.add_pass(measure::forced_acceptance_pass());
    if (!load.draft)
      load.draft = one_layer_head(setup::open_source(bench_options_.settings).config);
    return load;
  }
  // Loads the model with the options `load`. Returns false where it does not fit.
  bool open(const loader::LoadOptions& load) {
    const int64_t longest = bench_options_.context + decoding().max_tokens(load.limits);
    try {
      if (bench_.device == nullptr) {
        bench_ = open_bench(bench_options_, load, longest);
      } else {
        bench_.model.reset();
        bench_.model = load_model(*bench_.device, bench_options_, load, longest);
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kMemory) throw;
      log::info("left out: {}", error.what());
      return false;
    }
    if (title_.empty()) {
      title_ = bench_title("stack", bench_options_, bench_);
      head_ = bench_json("stack", bench_options_, bench_);
    }
    return true;
  }
  // Returns the median of some runs of the loaded model, after a few runs that warm the device up.
  measure::TimedSteps time(runtime::Graphs graphs) {
    constexpr int kWarmUpRuns = 2;
    loader::LoadedModel& model = *bench_.model;
    model.executor().set_graphs(graphs);
    const int64_t num_drafts = model.limits().num_drafts;
    if (num_drafts > 0) {
      const double probability = parse_share(options_.acceptance, "--acceptance");
      measure::force_acceptance(measure::rates_of_probability(probability, num_drafts),
                                model.executor().loaded());
    }
    std::vector<measure::TimedSteps> runs;
    for (int i = -kWarmUpRuns; i < bench_options_.runs.value_or(kStackRuns.gpu); ++i) {
      engine::Engine engine(model, bench_.step_by_step());
      measure::DecodingOptions decoding = this->decoding();
      decoding.seed = static_cast<uint64_t>(std::max(i, 0)) + 1;
      const measure::TimedSteps steps = measure::time_decoding(engine, decoding);
      if (i >= 0) runs.push_back(steps);
    }
    std::ranges::sort(runs, {}, &measure::TimedSteps::step_ms);
    return runs[runs.size() / 2];
  }

  const BenchStackOptions& options_;
  BenchOptions bench_options_;
  Bench bench_;
  std::string title_;  // empty until a model has been loaded
  json::object head_;
};

json::value row_json(const StackRow& row, const std::optional<double>& eager_ms) {
  const std::optional<double> ms = ms_per_token(row);
  json::object out{{"name", row.name},
                   {"ms_per_token", json::optional_number(ms)},
                   {"speed_up", nullptr},
                   {"step_ms", nullptr},
                   {"tokens_per_step", nullptr},
                   {"published_ms_per_token", json::optional_number(row.published_ms)},
                   {"published_speed_up", nullptr}};
  if (ms && eager_ms) out["speed_up"] = *eager_ms / *ms;
  if (row.published_ms) out["published_speed_up"] = kPublishedEagerMs / *row.published_ms;
  if (row.steps) {
    out["step_ms"] = row.steps->step_ms;
    out["tokens_per_step"] = row.steps->tokens_per_step;
  }
  return out;
}

std::string stack_table(const StackResult& result) {
  Table table({"", "ms/token", "speed-up", "step ms", "tokens/step", "published ms", "speed-up"});
  const std::optional<double> eager_ms = ms_per_token(result.rows[0]);
  for (const StackRow& row : result.rows) {
    const std::optional<double> ms = ms_per_token(row);
    const auto over = [](const std::optional<double>& all, const std::optional<double>& part) {
      return all && part ? std::optional(*all / *part) : std::nullopt;
    };
    const auto of_steps = [&](double measure::TimedSteps::*value) {
      return row.steps ? std::optional((*row.steps).*value) : std::nullopt;
    };
    table.add({row.name, optional_text(ms, 3), optional_text(over(eager_ms, ms), 2),
               optional_text(of_steps(&measure::TimedSteps::step_ms), 3),
               optional_text(of_steps(&measure::TimedSteps::tokens_per_step), 2),
               optional_text(row.published_ms, 1),
               optional_text(over(kPublishedEagerMs, row.published_ms), 2)});
  }
  return table.text();
}

void bench_stack(const BenchStackOptions& options) {
  // Refuses a malformed flag before anything is loaded.
  (void)parse_share(options.acceptance, "--acceptance");
  json::object out;
  for (const int64_t batch : options.batches) {
    Stack stack(options, batch);
    const StackResult result = stack.run();
    if (!options.bench.json) {
      print(stack.title() + stack_table(result));
      print(fmt::format("\n  {} buffers a step; medians of runs of {} steps\n\n",
                        result.num_buffers, stack.num_steps()));
      continue;
    }
    if (out.empty()) {
      out = stack.head();
      out.erase("batch");
      out["speculative_tokens"] = options.num_drafts;
      out["acceptance"] = parse_share(options.acceptance, "--acceptance");
      out["published_batch"] = kPublishedBatch;
      out["batches"] = json::array();
    }
    json::array rows;
    for (const StackRow& row : result.rows)
      rows.push_back(row_json(row, ms_per_token(result.rows[0])));
    out["batches"].as_array().push_back(json::object{{"batch", batch},
                                                     {"steps", stack.num_steps()},
                                                     {"num_buffers", result.num_buffers},
                                                     {"rows", std::move(rows)}});
  }
  if (options.bench.json) print(json::to_text(out) + "\n");
}

}  // namespace

void add_bench_stack(Command& bench) {
  Command* verb =
      bench.add_subcommand("stack", "What each optimization of decoding adds to those before it");
  auto options =
      std::make_shared<BenchStackOptions>();  // shared by the parser's options and the callback
  verb->add_option("--batches", options->batches, "Sequences at a time, one table each")
      ->range(int64_t{1}, int64_t{4096})
      ->delimiter(',')
      ->type_name("B,B,...")
      ->capture_default_str();
  add_runs_option(*verb, options->bench, kStackRuns);
  using config::Group;
  add_bench_model_options(*verb, options->bench, {Group::kRecording, Group::kSpeculation},
                          {"speculative_tokens"});
  verb->add_option("--speculative-tokens", options->num_drafts, "Tokens that a step guesses: K")
      ->range(int64_t{1}, int64_t{16})
      ->type_name("K")
      ->capture_default_str();
  verb->add_option("--acceptance", options->acceptance,
                   "Probability that a draft is right if those in front of it are: A")
      ->type_name("A")
      ->capture_default_str();
  add_steps_option(*verb, options->steps, kStackSteps);
  verb->add_option("--warmup-tokens", options->warmup_tokens,
                   "Tokens of the last sequence before timing starts")
      ->range(int64_t{1}, int64_t{1} << 20)
      ->type_name("N")
      ->capture_default_str();
  verb->group("Measurement: what is timed, and how often",
              {"--batches", "--runs", "--steps", "--warmup-tokens", "--acceptance"});
  verb->footer(kBenchStackFooter);
  verb->callback([options] { bench_stack(*options); });
}

}  // namespace encore::cli
