// Implements `encore bench speculate`, which compares the measured gain of speculation with the
// gain predicted from its parts.
#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/statistics.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/bench_acceptance.h"
#include "cli/command.h"
#include "cli/output.h"
#include "measure/forced_acceptance.h"
#include "measure/speculation.h"
#include "planning/floor.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr const char* kBenchSpeculateFooter =
    R"(Times decode steps of BATCH sequences that read CONTEXT random tokens: without drafts; of the draft model alone; with K
drafts that no model makes, which is the verification; and with K drafts of the draft model, all in one recording. Each is
the wall time of STEPS steps behind WARMUP tokens, over STEPS; the median of RUNS, behind a few
that warm the device up. Drafts are right as often as --acceptance says, or the options named synthetic, whatever they are: a draw takes the place of the comparison, behind all its work.

c and v are the times of a step of the draft model and of a verification, over that of a step without drafts. E is
(1 - a^(K+1)) / (1 - a): the tokens of a step where each draft is right with probability a if those in front of it are.
Speed-ups in tokens: E/(cK+1) takes checking to cost as much as a step without drafts, E/(cK+v) has it as measured, and
`measured` is that of the run, by the tokens that it had. `of it` compares the step alone, so that no luck of draws counts:
the time that its parts let expect, over its own; above 1, one recording is faster than its parts. `most` would be the
speed-up if drafts and checking cost nothing. `parts` is the sum of K steps of the draft model and a verification; `apart`
runs them so: recordings of their own, one after the other, with the host's look at the tokens between them.

  encore bench speculate --model stories --draft-model stories-draft --speculative-tokens 1,2,4
  encore bench speculate --model synthetic:llama-3.1-8b --draft-model synthetic:llama-3.1-8b-draft --batch 8
  encore bench speculate --model synthetic:llama-3.1-8b --draft-model synthetic:llama-3.1-8b-draft --batch 64 \
    --speculative-tokens 3 --synthetic-acceptance-length 2.5)";

struct BenchSpeculateOptions {
  BenchOptions bench;
  std::vector<int64_t> num_drafts = {1, 2, 3, 4, 5, 8};
  std::vector<std::string> probabilities = {"0.5", "0.6",  "0.7", "0.75",
                                            "0.8", "0.85", "0.9", "0.95"};
  AcceptanceOptions acceptance;
  std::optional<int64_t> steps;
  int64_t warmup_tokens = 9;
};

// Holds the acceptance rates that a run forces on its drafts.
struct Acceptance {
  std::optional<double> probability;  // probability of each draft; absent where rates were given
  std::vector<double> rates;
};

std::vector<Acceptance> acceptances(const BenchSpeculateOptions& options, int64_t num_drafts) {
  if (options.acceptance.are_given())
    return {{std::nullopt, options.acceptance.rates_for(num_drafts)}};
  std::vector<Acceptance> all;
  for (const std::string& text : options.probabilities) {
    const double probability = parse_share(text, "--acceptance");
    all.push_back({probability, measure::rates_of_probability(probability, num_drafts)});
  }
  return all;
}

struct Point {
  Acceptance acceptance;
  measure::TimedSteps steps;
};

// Holds all measurements of steps with one number of drafts.
struct DraftsResult {
  int64_t num_drafts = 0;
  measure::SpeculationTimes times;
  std::vector<Point> points;
  std::optional<double> apart_ms =
      {};  // step whose drafts and checks are separate recordings; absent: drafts are looked up

  [[nodiscard]] double step_ms() const {
    std::vector<double> all;
    for (const Point& point : points)
      all.push_back(point.steps.step_ms);
    return median(all);
  }
};

struct DraftAlone {
  double step_ms = 0;
  int64_t weight_bytes = 0;
};

constexpr measure::ByDevice kSpeculateRuns{.gpu = 3, .cpu = 3};
constexpr measure::ByDevice kSpeculateSteps{.gpu = 64, .cpu = 24};

// Loads models one after the other on one device, and times their steps.
class Speculation {
 public:
  explicit Speculation(const BenchSpeculateOptions& options)
      : options_(options), settings_(options.bench.settings) {
    settings_.auto_drafts = false;  // the command line lists the numbers of drafts
    config::Settings plain = settings_;
    plain.draft_model.clear();
    plain.speculative_method.clear();
    BenchOptions bench = options.bench;
    bench.settings = plain;
    bench_ = open_bench(bench, load_options(plain, 0), longest(load_options(plain, 0)));
  }

  [[nodiscard]] Bench& bench() { return bench_; }
  [[nodiscard]] measure::DecodingOptions decoding() const {
    return {.batch = options_.bench.batch,
            .context = options_.bench.context,
            .warmup_tokens = options_.warmup_tokens,
            .steps = options_.steps.value_or(bench_.device == nullptr
                                                 ? kSpeculateSteps.gpu
                                                 : kSpeculateSteps.on(bench_.device->kind()))};
  }

  // Times the loaded model. `rates` are the forced acceptance rates, used only if the model's steps
  // have drafts.
  measure::TimedSteps time(std::span<const double> rates = {}) {
    loader::LoadedModel& model = *bench_.model;
    if (model.limits().num_drafts > 0) measure::force_acceptance(rates, model.executor().loaded());
    std::vector<measure::TimedSteps> runs;
    const int num_runs = options_.bench.runs.value_or(kSpeculateRuns.gpu);
    for (int i = is_warm_ ? 0 : -kWarmUpRuns; i < num_runs; ++i) {
      engine::Engine engine(model, bench_.loop);
      measure::DecodingOptions decoding = this->decoding();
      decoding.seed = static_cast<uint64_t>(std::max(i, 0)) + 1;
      const measure::TimedSteps steps = measure::time_decoding(engine, decoding);
      if (i >= 0) runs.push_back(steps);
    }
    is_warm_ = true;
    std::ranges::sort(runs, {}, &measure::TimedSteps::step_ms);
    return runs[runs.size() / 2];
  }

  std::optional<DraftAlone> time_draft_alone() {
    if (settings_.draft_model.empty()) return std::nullopt;
    load(draft_settings(), 0);
    const int64_t batch = options_.bench.batch;
    return DraftAlone{
        time().step_ms,
        planning::step_cost(bench_.model->program().graph, {batch, batch}).weight_bytes};
  }

  DraftsResult time_drafts(int64_t num_drafts, double plain_ms,
                           const std::optional<DraftAlone>& draft) {
    DraftsResult result{num_drafts, {.plain_ms = plain_ms}, {}};
    const std::vector<Acceptance> all = acceptances(options_, num_drafts);
    config::Settings looked_up = settings_;
    looked_up.draft_model.clear();
    looked_up.speculative_method.clear();
    load(looked_up, num_drafts);
    result.times.verify_ms = time(all[all.size() / 2].rates).step_ms;
    if (draft) {
      result.apart_ms = time_apart(num_drafts);
      result.times.draft_ms = draft->step_ms;
      load(settings_, num_drafts);
    }
    for (const Acceptance& acceptance : all)
      result.points.push_back({acceptance, time(acceptance.rates)});
    return result;
  }

 private:
  [[nodiscard]] loader::LoadOptions load_options(const config::Settings& settings,
                                                 int64_t num_drafts) const {
    BenchOptions bench = options_.bench;
    bench.settings = settings;
    loader::LoadOptions load = decode_load_options(bench);
    load.record_all_modes = false;
    load.limits.num_drafts = num_drafts;
    load.limits.fewer_drafts.clear();
    const int64_t step = load.limits.max_batch_size * (1 + num_drafts);
    load.limits.max_num_tokens = std::max(load.limits.max_num_tokens, step);
    load.tokens = runtime::Ladder({load.limits.max_num_tokens});
    if (num_drafts > 0) load.compile.add_pass(measure::forced_acceptance_pass());
    return load;
  }
  [[nodiscard]] int64_t longest(const loader::LoadOptions& load) const {
    return options_.bench.context + decoding().max_tokens(load.limits);
  }
  void load(const config::Settings& settings, int64_t num_drafts) {
    BenchOptions bench = options_.bench;
    bench.settings = settings;
    const loader::LoadOptions load = load_options(settings, num_drafts);
    bench_.model.reset();
    bench_.model = load_model(*bench_.device, bench, load, longest(load));
  }
  // Returns the settings that load the draft model as a model by itself.
  [[nodiscard]] config::Settings draft_settings() const {
    config::Settings alone = settings_;
    alone.model = settings_.draft_model;
    alone.draft_model.clear();
    alone.speculative_method.clear();
    return alone;
  }
  // Times steps whose drafts and checks are separate recordings. Loads the draft model beside the
  // loaded model, which checks.
  double time_apart(int64_t num_drafts) {
    BenchOptions drafting = options_.bench;
    drafting.settings = draft_settings();
    const loader::LoadOptions load = load_options(drafting.settings, 0);
    measure::DecodingOptions decoding = this->decoding();
    decoding.steps *= num_drafts;
    const int64_t longest = drafting.context + decoding.max_tokens(load.limits);
    const auto draft = load_model(*bench_.device, drafting, load, longest);
    engine::EngineOptions loop = bench_.loop;
    loop.overlap = false;
    std::vector<double> runs;
    for (int i = 0; i < options_.bench.runs.value_or(kSpeculateRuns.gpu); ++i) {
      engine::Engine guesses(*draft, loop);
      engine::Engine checks(*bench_.model, loop);
      runs.push_back(measure::time_apart(guesses, checks, num_drafts, this->decoding()));
    }
    return median(runs);
  }

  // An idle device is slow at first, so the first model to be timed, the one without drafts, gets
  // these extra runs.
  static constexpr int kWarmUpRuns = 5;

  const BenchSpeculateOptions& options_;
  config::Settings settings_;
  Bench bench_;
  bool is_warm_ = false;
};

// Holds the figures of one row of the table of speed-ups.
struct SpeedUp {
  double tokens = 0;  // E, the mean number of tokens per step
  double with_free_checks = 0;
  double predicted = 0;
  double measured = 0;
  double share = 0;  // measured speed-up as a share of the predicted one
};

SpeedUp speed_up(const DraftsResult& result, const Point& point, double plain_tokens_per_s) {
  const double tokens = measure::expected_tokens(point.acceptance.rates);
  return {.tokens = tokens,
          .with_free_checks = result.times.with_free_checks(tokens, result.num_drafts),
          .predicted = result.times.predicted(tokens, result.num_drafts),
          .measured = point.steps.tokens_per_s / plain_tokens_per_s,
          .share = result.times.apart_ms(result.num_drafts) / point.steps.step_ms};
}

json::object drafts_json(const DraftsResult& result, double plain_tokens_per_s) {
  json::array points;
  for (const Point& point : result.points) {
    const SpeedUp gain = speed_up(result, point, plain_tokens_per_s);
    const std::vector<double>& rates = point.acceptance.rates;
    points.push_back(
        json::object{{"acceptance", json::optional_number(point.acceptance.probability)},
                     {"acceptance_rates", json::array(rates.begin(), rates.end())},
                     {"expected_tokens", gain.tokens},
                     {"speed_up_with_free_checks", gain.with_free_checks},
                     {"speed_up_predicted", gain.predicted},
                     {"speed_up", gain.measured},
                     {"share_of_predicted", gain.share},
                     {"speed_up_at_most", gain.tokens},
                     {"step_ms", point.steps.step_ms},
                     {"tokens_per_step", point.steps.tokens_per_step},
                     {"tokens_per_s", point.steps.tokens_per_s}});
  }
  return {{"speculative_tokens", result.num_drafts},
          {"step_ms", result.step_ms()},
          {"verify_ms", result.times.verify_ms},
          {"v", result.times.verify_cost()},
          {"parts_ms", result.times.apart_ms(result.num_drafts)},
          {"apart_ms", json::optional_number(result.apart_ms)},
          {"points", std::move(points)}};
}

std::string costs_table(const std::vector<DraftsResult>& results) {
  Table table(
      {"K", "step ms", "verify ms", "v", "parts ms", "parts / one", "apart ms", "apart / one"});
  for (const DraftsResult& result : results) {
    const double parts_ms = result.times.apart_ms(result.num_drafts);
    const auto over_one = [&](double ms) { return ms / result.step_ms(); };
    const std::optional<double> apart =
        result.apart_ms ? std::optional(over_one(*result.apart_ms)) : std::nullopt;
    table.add({fmt::format("{}", result.num_drafts), fmt::format("{:.3f}", result.step_ms()),
               fmt::format("{:.3f}", result.times.verify_ms),
               fmt::format("{:.3f}", result.times.verify_cost()), fmt::format("{:.3f}", parts_ms),
               fmt::format("{:.3f}", over_one(parts_ms)), optional_text(result.apart_ms, 3),
               optional_text(apart, 3)});
  }
  return table.text();
}

std::string gains_table(const std::vector<DraftsResult>& results, double plain_tokens_per_s) {
  Table table({"K", "a", "tokens/step", "E", "E/(cK+1)", "E/(cK+v)", "measured", "of it", "most",
               "tokens/s"});
  for (const DraftsResult& result : results) {
    for (const Point& point : result.points) {
      const SpeedUp gain = speed_up(result, point, plain_tokens_per_s);
      const auto& probability = point.acceptance.probability;
      table.add({fmt::format("{}", result.num_drafts), optional_text(probability, 2),
                 fmt::format("{:.3f}", point.steps.tokens_per_step),
                 fmt::format("{:.3f}", gain.tokens), fmt::format("{:.2f}", gain.with_free_checks),
                 fmt::format("{:.2f}", gain.predicted), fmt::format("{:.2f}", gain.measured),
                 fmt::format("{:.3f}", gain.share), fmt::format("{:.2f}", gain.tokens),
                 fmt::format("{:.1f}", point.steps.tokens_per_s)});
    }
  }
  return table.text();
}

std::string draft_text(const BenchSpeculateOptions& options, const DraftAlone& draft,
                       double plain_ms, double read_bandwidth) {
  std::string text =
      fmt::format("  draft {}: {:.3f} ms a step alone, c = {:.4f}",
                  options.bench.settings.draft_model, draft.step_ms, draft.step_ms / plain_ms);
  if (read_bandwidth > 0) {
    const double floor_ms = static_cast<double>(draft.weight_bytes) / read_bandwidth * 1e3;
    text += fmt::format("; its {} of weights take {:.3f} ms to read: {:.2f}x",
                        bytes_text(draft.weight_bytes), floor_ms, draft.step_ms / floor_ms);
  }
  return text + "\n";
}

void bench_speculate(const BenchSpeculateOptions& options) {
  for (const int64_t num_drafts : options.num_drafts)
    (void)acceptances(options, num_drafts);  // checks the flags before anything is loaded
  Speculation speculation(options);
  Bench& bench = speculation.bench();
  json::object out = bench_json("speculate", options.bench, bench);
  const std::string title = bench_title("speculate", options.bench, bench);
  const measure::TimedSteps plain = speculation.time();
  const std::optional<DraftAlone> draft = speculation.time_draft_alone();
  std::vector<DraftsResult> results;
  for (const int64_t num_drafts : options.num_drafts)
    results.push_back(speculation.time_drafts(num_drafts, plain.step_ms, draft));
  if (options.bench.json) {
    out["steps"] = speculation.decoding().steps;
    out["plain_ms"] = plain.step_ms;
    out["plain_tokens_per_s"] = plain.tokens_per_s;
    out["draft"] = draft ? json::value(json::object{{"model", options.bench.settings.draft_model},
                                                    {"step_ms", draft->step_ms},
                                                    {"c", draft->step_ms / plain.step_ms},
                                                    {"weight_bytes", draft->weight_bytes}})
                         : json::value(nullptr);
    json::array rows;
    for (const DraftsResult& result : results)
      rows.push_back(drafts_json(result, plain.tokens_per_s));
    out["drafts"] = std::move(rows);
    return print(json::to_text(out) + "\n");
  }
  print(title);
  print(fmt::format("  without drafts: {:.3f} ms a step, {:.1f} tokens/s\n", plain.step_ms,
                    plain.tokens_per_s));
  print(draft ? draft_text(options, *draft, plain.step_ms, bench.read_bandwidth)
              : "  drafts are looked up: c = 0\n");
  print("\n" + costs_table(results) + "\n" + gains_table(results, plain.tokens_per_s));
}

}  // namespace

void add_bench_speculate(Command& bench) {
  Command* verb =
      bench.add_subcommand("speculate", "What speculation gains, beside what its parts let expect");
  auto options =
      std::make_shared<BenchSpeculateOptions>();  // shared by the parser and the callback
  add_batch_option(*verb, options->bench);
  add_runs_option(*verb, options->bench, kSpeculateRuns);
  using config::Group;
  add_bench_model_options(*verb, options->bench,
                          {Group::kGraphs, Group::kRecording, Group::kSpeculation},
                          {"speculative_tokens"});
  verb->add_option("--speculative-tokens", options->num_drafts,
                   "Tokens that a step guesses: K. Each is loaded and timed by itself")
      ->range(int64_t{1}, int64_t{16})
      ->delimiter(',')
      ->type_name("K,K,...")
      ->capture_default_str();
  verb->add_option("--acceptance", options->probabilities,
                   "Probabilities that a draft is right if those in front of it are: a")
      ->delimiter(',')
      ->type_name("A,A,...")
      ->capture_default_str();
  add_acceptance_options(*verb, options->acceptance);
  add_steps_option(*verb, options->steps, kSpeculateSteps);
  verb->add_option("--warmup-tokens", options->warmup_tokens,
                   "Tokens of the last sequence before timing starts")
      ->range(int64_t{1}, int64_t{1} << 20)
      ->type_name("N")
      ->capture_default_str();
  verb->group("Measurement: what is timed, and how often",
              {"--runs", "--steps", "--warmup-tokens", "--acceptance",
               "--synthetic-acceptance-rates", "--synthetic-acceptance-length"});
  verb->footer(kBenchSpeculateFooter);
  verb->callback([options] { bench_speculate(*options); });
}

}  // namespace encore::cli
