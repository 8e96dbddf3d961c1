// Implements `encore bench drafts`, which compares the number of drafts that steps choose with each
// fixed number, and with no drafts.
#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/bench_acceptance.h"
#include "cli/command.h"
#include "cli/output.h"
#include "config/speculative_tokens.h"
#include "measure/forced_acceptance.h"
#include "measure/speculation.h"
#include "measure/timing.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr measure::ByDevice kDraftsSteps{.gpu = 128, .cpu = 64};
constexpr double kLeastOfBest = 0.97;
constexpr double kLeastOfNone = 0.99;

constexpr const char* kBenchDraftsFooter =
    R"(Times decode steps of each BATCH and each acceptance: of a start without drafts, with each number of drafts of the list, and
with the number that each step chooses. All of a model's steps are recorded in one start; drafts are right as often as
--acceptance says, whatever they are. Each figure is tokens/s of STEPS steps, behind WARMUP tokens of the last sequence, in which
steps that choose have tried each number; later trials count. So sequences are as long where the same number is chosen.

`of best` compares with the best of none and each number, `of none` with a start without drafts, which has no draft model
either. The last lines name the lowest of both: 0.97 and 0.99 are what they should be. --without SHARE has so many of the
sequences take no drafts.

  encore bench drafts --model stories --draft-model stories-draft --batches 1,8 --context 64
  encore bench drafts --model synthetic:llama-3.1-8b --draft-model synthetic:llama-3.1-8b-draft --without 0.5)";

struct BenchDraftsOptions {
  BenchOptions bench;
  std::vector<int64_t> batches = {1, 8, 32, 64, 128, 256};
  std::vector<std::string> acceptances = {"0.2", "0.5", "0.9"};
  std::vector<std::string> speculative_tokens = {"auto"};
  std::string without = "0";
  std::optional<int64_t> steps;
  int64_t warmup_tokens = 32;
};

// Holds the speeds of one batch size, where a draft is right with the probability `acceptance`:
// without drafts, with each fixed number of drafts, and where steps choose the number. Units:
// tokens/s.
struct DraftsPoint {
  int64_t batch = 0;
  double acceptance = 0;
  double none = 0;            // speed of a model loaded without drafts
  std::vector<double> fixed;  // one speed for each fixed number of drafts
  double chosen = 0;
  double chosen_drafts = 0;  // mean number of drafts that steps chose

  [[nodiscard]] double best() const { return std::max(none, *std::ranges::max_element(fixed)); }
  [[nodiscard]] double of_best() const { return chosen / best(); }
  [[nodiscard]] double of_none() const { return chosen / none; }
};

// Returns the mean number of drafts of a sequence in a decode step, over all decode steps.
double mean_drafts(const engine::Engine& engine) {
  int64_t steps = 0;
  int64_t drafts = 0;
  for (const engine::StepCount& count : engine.step_counts()) {
    if (!count.key.q) continue;
    steps += count.steps;
    drafts += count.steps * (*count.key.q - 1);
  }
  return static_cast<double>(drafts) / static_cast<double>(std::max<int64_t>(1, steps));
}

class DraftsBench {
 public:
  explicit DraftsBench(const BenchDraftsOptions& options)
      : options_(options), without_(parse_share(options.without, "--without")) {
    std::ranges::sort(options_.batches);
    for (const std::string& text : options.acceptances)
      acceptances_.push_back(parse_share(text, "--acceptance"));
    options_.bench.batch = options_.batches.back();
  }

  std::vector<DraftsPoint> run() {
    std::vector<DraftsPoint> points;
    BenchOptions plain = options_.bench;
    plain.settings.draft_model.clear();
    plain.settings.speculative_method.clear();
    plain.settings.auto_drafts = false;
    bench_ = open_bench(plain, load_options(plain, {}), longest());
    for (const int64_t batch : options_.batches) {
      const double none = time(batch, {}).tokens_per_s;
      for (const double acceptance : acceptances_)
        points.push_back({.batch = batch, .acceptance = acceptance, .none = none});
    }
    bench_.model.reset();
    BenchOptions drafting = options_.bench;
    drafting.settings.auto_drafts = config::is_auto(options_.speculative_tokens);
    const std::vector<int64_t> counts = config::draft_counts(options_.speculative_tokens);
    bench_.model = load_model(*bench_.device, drafting, load_options(drafting, counts), longest());
    if (limits().num_drafts == 0) {
      fail(
          ErrorKind::kUsage,
          "no number of drafts gains anything here, so there is nothing to choose from: name some, "
          "--speculative-tokens 1,2,4");
    }
    for (DraftsPoint& point : points)
      time_drafts(point);
    return points;
  }

  [[nodiscard]] Bench& bench() { return bench_; }
  [[nodiscard]] const BenchOptions& bench_options() const { return options_.bench; }
  [[nodiscard]] const runtime::Limits& limits() const { return bench_.model->limits(); }
  [[nodiscard]] int64_t num_steps() const {
    const DeviceKind kind = bench_.device == nullptr ? DeviceKind::kCuda : bench_.device->kind();
    return options_.steps.value_or(kDraftsSteps.on(kind));
  }

 private:
  static constexpr int64_t kMostDrafts = 16;

  [[nodiscard]] measure::DecodingOptions decoding(int64_t batch) const {
    return {.batch = batch,
            .context = options_.bench.context,
            .warmup_tokens = options_.warmup_tokens,
            .steps = num_steps(),
            .share_without_drafts = without_};
  }
  [[nodiscard]] int64_t longest() const {
    runtime::Limits most{.max_num_tokens = kDefaultMaxNumTokens, .num_drafts = most_drafts()};
    return options_.bench.context + decoding(options_.batches.back()).max_tokens(most);
  }
  [[nodiscard]] int64_t most_drafts() const {
    const auto counts = config::draft_counts(options_.speculative_tokens);
    return counts.empty() ? kMostDrafts : counts.back();
  }
  static loader::LoadOptions load_options(const BenchOptions& bench, std::vector<int64_t> counts,
                                          const std::vector<int64_t>& batches) {
    loader::LoadOptions load = decode_load_options(bench);
    load.record_all_modes = false;
    load.sequences = runtime::Ladder(batches);
    load.limits.num_drafts = counts.empty() ? 0 : counts.back();
    if (!counts.empty()) counts.pop_back();
    load.limits.fewer_drafts = std::move(counts);
    load.limits.max_num_tokens =
        std::max({load.limits.max_num_tokens, kDefaultMaxNumTokens,
                  load.limits.max_batch_size * (1 + load.limits.num_drafts)});
    load.tokens = runtime::Ladder({load.limits.max_num_tokens});
    if (load.limits.num_drafts > 0) load.compile.add_pass(measure::forced_acceptance_pass());
    return load;
  }
  [[nodiscard]] loader::LoadOptions load_options(const BenchOptions& bench,
                                                 std::vector<int64_t> counts) const {
    return load_options(bench, std::move(counts), options_.batches);
  }
  // Times steps of `batch` sequences. `fixed` is the number of drafts of every step; if absent,
  // each step chooses its own. Writes the mean number of drafts to `drafts` unless it is null.
  measure::TimedSteps time(int64_t batch, std::optional<int64_t> fixed, double* drafts = nullptr) {
    engine::EngineOptions loop = bench_.loop;
    loop.fixed_drafts = fixed;
    loop.most_draft_slowdown = std::numeric_limits<double>::max();
    engine::Engine engine(*bench_.model, loop);
    const measure::TimedSteps timed = measure::time_decoding(engine, decoding(batch));
    if (drafts != nullptr) *drafts = mean_drafts(engine);
    return timed;
  }
  void time_drafts(DraftsPoint& point) {
    measure::force_acceptance(measure::rates_of_probability(point.acceptance, limits().num_drafts),
                              bench_.model->executor().loaded());
    for (const int64_t count : limits().draft_counts())
      point.fixed.push_back(time(point.batch, count).tokens_per_s);
    point.chosen = time(point.batch, std::nullopt, &point.chosen_drafts).tokens_per_s;
  }

  BenchDraftsOptions options_;
  double without_;
  std::vector<double> acceptances_;
  Bench bench_;
};

const DraftsPoint& lowest(const std::vector<DraftsPoint>& points,
                          double (DraftsPoint::*share)() const) {
  return *std::ranges::min_element(points, {},
                                   [&](const DraftsPoint& point) { return (point.*share)(); });
}

std::string drafts_table(const std::vector<DraftsPoint>& points,
                         const std::vector<int64_t>& counts) {
  std::vector<std::string> titles = {"batch", "acceptance", "none"};
  for (const int64_t count : counts)
    titles.push_back(fmt::format("K = {}", count));
  titles.insert(titles.end(), {"chosen", "its K", "of best", "of none"});
  Table table(std::move(titles));
  for (const DraftsPoint& point : points) {
    std::vector<std::string> row = {fmt::format("{}", point.batch),
                                    fmt::format("{:g}", point.acceptance),
                                    fmt::format("{:.1f}", point.none)};
    for (const double speed : point.fixed)
      row.push_back(fmt::format("{:.1f}", speed));
    row.insert(row.end(),
               {fmt::format("{:.1f}", point.chosen), fmt::format("{:.2f}", point.chosen_drafts),
                fmt::format("{:.3f}", point.of_best()), fmt::format("{:.3f}", point.of_none())});
    table.add(std::move(row));
  }
  return table.text();
}

std::string lowest_text(std::string_view what, const DraftsPoint& point, double share,
                        double least) {
  return fmt::format("  lowest {}: {:.3f} (batch {}, acceptance {:g}); should be {} or more: {}\n",
                     what, share, point.batch, point.acceptance, least,
                     share >= least ? "yes" : "no");
}

void bench_drafts(const BenchDraftsOptions& options) {
  DraftsBench drafts(options);
  const std::vector<DraftsPoint> points = drafts.run();
  const std::vector<int64_t> counts = drafts.limits().draft_counts();
  const DraftsPoint& worst_of_best = lowest(points, &DraftsPoint::of_best);
  const DraftsPoint& worst_of_none = lowest(points, &DraftsPoint::of_none);
  if (options.bench.json) {
    json::object out = bench_json("drafts", drafts.bench_options(), drafts.bench());
    out["steps"] = drafts.num_steps();
    out["speculative_tokens"] = json::array(counts.begin(), counts.end());
    out["max_drafting_sequences"] = drafts.limits().max_drafting_sequences
                                        ? json::value(*drafts.limits().max_drafting_sequences)
                                        : json::value(nullptr);
    json::array rows;
    for (const DraftsPoint& point : points) {
      rows.push_back(
          json::object{{"batch", point.batch},
                       {"acceptance", point.acceptance},
                       {"none_tokens_per_s", point.none},
                       {"fixed_tokens_per_s", json::array(point.fixed.begin(), point.fixed.end())},
                       {"chosen_tokens_per_s", point.chosen},
                       {"chosen_drafts", point.chosen_drafts},
                       {"of_best", point.of_best()},
                       {"of_none", point.of_none()}});
    }
    out["points"] = std::move(rows);
    out["least_of_best"] = worst_of_best.of_best();
    out["least_of_none"] = worst_of_none.of_none();
    return print(json::to_text(out) + "\n");
  }
  print(bench_title("drafts", drafts.bench_options(), drafts.bench()));
  print("tokens/s\n" + drafts_table(points, counts) + "\n");
  print(lowest_text("of best", worst_of_best, worst_of_best.of_best(), kLeastOfBest));
  print(lowest_text("of none", worst_of_none, worst_of_none.of_none(), kLeastOfNone));
}

}  // namespace

void add_bench_drafts(Command& bench) {
  Command* verb = bench.add_subcommand(
      "drafts", "What choosing the number of guesses in each step gives beside each number");
  auto options =
      std::make_shared<BenchDraftsOptions>();  // shared by the parser's options and the callback
  verb->add_option("--batches", options->batches, "Sequences at a time")
      ->range(int64_t{1}, int64_t{4096})
      ->delimiter(',')
      ->type_name("B,B,...")
      ->capture_default_str();
  using config::Group;
  add_bench_model_options(*verb, options->bench,
                          {Group::kGraphs, Group::kRecording, Group::kSpeculation},
                          {"speculative_tokens", "speculative_slowdown"});
  verb->add_option("--speculative-tokens", options->speculative_tokens,
                   "The numbers to choose from, or auto: those that may gain here")
      ->delimiter(',')
      ->type_name("K,K,...")
      ->capture_default_str();
  verb->add_option("--acceptance", options->acceptances,
                   "Probabilities that a draft is right if those in front of it are")
      ->delimiter(',')
      ->type_name("A,A,...")
      ->capture_default_str();
  verb->add_option("--without", options->without, "Share of the sequences that take no drafts")
      ->type_name("SHARE")
      ->capture_default_str();
  add_steps_option(*verb, options->steps, kDraftsSteps);
  verb->add_option("--warmup-tokens", options->warmup_tokens,
                   "Tokens of the last sequence before timing starts")
      ->range(int64_t{1}, int64_t{1} << 20)
      ->type_name("N")
      ->capture_default_str();
  verb->group("Measurement: what is timed, and how often",
              {"--batches", "--steps", "--warmup-tokens", "--acceptance", "--without"});
  verb->footer(kBenchDraftsFooter);
  verb->callback([options] { bench_drafts(*options); });
}

}  // namespace encore::cli
