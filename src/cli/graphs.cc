// Implements `encore graphs`, which shows how recordings serve the steps of a log, and predicts
// what they cost.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/command.h"
#include "cli/graphs_estimate.h"
#include "cli/graphs_measure.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/options.h"
#include "loader/compatibility.h"
#include "measure/report_page.h"
#include "planning/cost_model.h"
#include "planning/coverage_report.h"
#include "planning/ladder_report.h"
#include "planning/schedules.h"
#include "planning/step_log_reader.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr const char* kAboveLadder = "above_ladder";

std::string footer() {
  return fmt::format(
      R"(With --log: the steps of a log (see `encore tune --help`) against two ladders. A step without context tokens is
matched on its requests, any other on the sum; hit rate is the steps at or under the largest size over all steps.
Schedules go up to --max-batch-size or --max-num-tokens, by default to their own size that holds the log's largest step;
vllm and trtllm have an end of their own. With --model, `KV tokens` are those whose K and V would lie in the memory that
a ladder's recordings take, as --estimate has it. Where the log says how steps really ran, that is shown as well.

Coverage counts every step that the scheduler may form under --max-batch-size and --max-num-tokens, as decided by what
would be recorded for these ladders: --coverage needs no log, --eager-steps forbid makes an uncovered step an error.
Without a log, the limits are 512 sequences and 2048 tokens unless the options say otherwise.

With --estimate: nodes, recording time and memory by size, from the program of --model and the kernels of --device
(which need not be here), nothing loaded.
  time    recordings x {:.0f} us + nodes x {:.0f} us; for those of executables {:.1f} us more, for those that share one
          in another's {:.1f} us
  memory  executables x {:.0f} kB + their nodes x {:.1f} kB, {:.0f} kB each at least; the arena beside it is one for all sizes
Times were measured on an H200, memory on an H100, with CUDA 13.0. --measure loads the model and puts the figures of this
device beside them: strategies for decode and token sizes (steps with prompts whole, as they are served, and in pieces),
numbers of sizes, orders of recording beside the one arena, the tokens of KV that recordings take the place of, and the
memory plan against the driver's count; up to 512 sequences also the published figures of such strategies.)",
      planning::kUsPerRecording, planning::kCaptureUsPerNode, planning::kInstantiateUsPerNode,
      planning::kSharedUsPerNode, planning::kBytesPerExecutable / 1e3,
      planning::kBytesPerNode / 1e3, planning::kLeastBytesPerExecutable / 1e3);
}

// Counts a log's steps by how they ran.
struct Logged {
  std::map<std::string, int64_t> modes;
  std::map<std::string, int64_t> reasons;
  std::optional<int64_t> padding;
  std::map<std::string, std::vector<double>> host_us;  // key: mode
  std::map<std::string, std::vector<double>> gpu_us;
};

Logged logged(const std::vector<planning::LoggedStep>& steps) {
  Logged logged;
  for (const planning::LoggedStep& step : steps) {
    if (!step.mode.empty()) ++logged.modes[step.mode];
    if (!step.reason.empty()) ++logged.reasons[step.reason];
    if (step.padding) logged.padding = logged.padding.value_or(0) + *step.padding;
    if (step.host_us) logged.host_us[step.mode].push_back(*step.host_us);
    if (step.gpu_us) logged.gpu_us[step.mode].push_back(*step.gpu_us);
  }
  return logged;
}

std::optional<double> median_of(const std::map<std::string, std::vector<double>>& times,
                                const std::string& mode) {
  const auto place = times.find(mode);
  if (place == times.end()) return std::nullopt;
  std::vector<double> values = place->second;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the ladder that a flag names, or else the engine's default, with its price.
planning::PricedLadder chosen_ladder(const char* flag, const std::string& text,
                                     const planning::Workload& workload) {
  const int64_t max = std::max<int64_t>(workload.max, 1);
  if (text.empty()) {
    const std::string name = workload.key == "decode" ? "encore-decode" : "encore";
    return planning::price_ladder(name, planning::named_or_list(name, max), workload);
  }
  // A list of sizes is taken unchanged, whatever the log's largest step is.
  const bool is_list = planning::is_list(text);
  return planning::price_ladder(is_list ? "given" : text,
                                setup::parse_ladder(flag, text, is_list ? INT64_MAX : max),
                                workload);
}

// Holds the steps that one ladder serves, its price, and the prices of other ladders.
struct LadderPrices {
  planning::Workload workload;
  planning::PricedLadder chosen;
  std::vector<planning::PricedLadder> others;
};

// Holds the contents of the report, which is printed as text, JSON or a page.
struct Report {
  std::string log;
  int64_t num_steps = 0;
  int64_t num_idle = 0;
  std::vector<LadderPrices> ladders;
  Logged logged;
  planning::PlannedCoverage planned;

  [[nodiscard]] int64_t hits() const {
    int64_t hits = 0;
    for (const LadderPrices& prices : ladders)
      hits += prices.chosen.price.hits;
    return hits;
  }
  [[nodiscard]] int64_t steps() const { return num_steps - num_idle; }
  [[nodiscard]] double hit_rate() const {
    return steps() == 0 ? 1 : static_cast<double>(hits()) / static_cast<double>(steps());
  }
  [[nodiscard]] int64_t padding() const {
    int64_t padding = 0;
    for (const LadderPrices& prices : ladders)
      padding += prices.chosen.price.padding;
    return padding;
  }
};

// Plans coverage up to the given limits, or, without them, up to the largest step of the log and
// the largest size of the ladders.
planning::PlannedCoverage planned_for(const GraphsOptions& options,
                                      const std::vector<LadderPrices>& ladders) {
  loader::LoadOptions load = setup::load_options(options.settings);
  const auto largest = [](const LadderPrices& prices) {
    return std::max(prices.workload.max, prices.chosen.ladder.sizes().back());
  };
  load.sequences = ladders[0].chosen.ladder;
  load.tokens = ladders[1].chosen.ladder;
  // A log may have larger steps than Encore ever forms, so sizes are capped at the options' ranges.
  const auto capped = [](std::string_view option, int64_t size) {
    return std::min(size, static_cast<int64_t>(config::find_option(option)->range.max));
  };
  load.limits.max_batch_size =
      capped("max_batch_size", options.settings.max_batch_size.value_or(largest(ladders[0])));
  load.limits.max_num_tokens =
      capped("max_num_tokens", options.settings.max_num_tokens.value_or(
                                   std::max(largest(ladders[1]), load.limits.max_batch_size)));
  if (options.settings.max_seq_len) load.limits.max_seq_len = *options.settings.max_seq_len;
  setup::split_if_asked(options.settings, load);
  return planning::plan_coverage(load);
}

Report make_report(const GraphsOptions& options) {
  const auto steps = planning::read_step_log(options.log);
  Report report;
  report.log = options.log;
  report.num_steps = static_cast<int64_t>(steps.size());
  report.num_idle = planning::step_sizes(steps).num_idle;
  report.logged = logged(steps);
  for (planning::Workload& workload : planning::workloads(steps, options.settings.max_batch_size,
                                                          options.settings.max_num_tokens)) {
    const bool decode = workload.key == "decode";
    planning::PricedLadder chosen = chosen_ladder(
        decode ? "--decode-ladder" : "--token-ladder",
        decode ? options.settings.decode_ladder : options.settings.token_ladder, workload);
    std::vector<planning::PricedLadder> others = planning::price_schedules(workload);
    report.ladders.push_back({std::move(workload), std::move(chosen), std::move(others)});
  }
  if (!options.settings.model.empty()) {
    const RecordingMemory memory = recording_memory(
        options.settings, setup::load_options(options.settings).limits.max_batch_size);
    for (LadderPrices& prices : report.ladders) {
      const bool is_decode = prices.workload.key == "decode";
      prices.chosen.kv_tokens = memory.kv_tokens(is_decode, prices.chosen.ladder);
      for (planning::PricedLadder& other : prices.others)
        other.kv_tokens = memory.kv_tokens(is_decode, other.ladder);
    }
  }
  report.planned = planned_for(options, report.ladders);
  return report;
}

std::string ladder_text(const LadderPrices& prices) {
  const int64_t steps = prices.chosen.price.steps;
  if (steps == 0) return fmt::format("{}: none in the log\n", prices.workload.what);
  std::vector<planning::PricedLadder> rows{prices.chosen};
  rows.insert(rows.end(), prices.others.begin(), prices.others.end());
  return fmt::format("{} {}, the largest of {} {}\n{}\n{}", steps, prices.workload.what,
                     prices.workload.histogram.back().size, prices.workload.rows,
                     planning::verdict_text(prices.chosen, prices.workload),
                     planning::ladder_table(rows).text());
}

std::string logged_text(const Logged& logged) {
  if (logged.modes.empty() && logged.reasons.empty()) return "";
  std::string text = "\nas logged";
  if (logged.padding) text += fmt::format(", padding {}", *logged.padding);
  text += '\n';
  Table modes({"mode", "steps", "host us", "gpu us"});
  const auto cell = [](const std::optional<double>& us) {
    return us ? fmt::format("{:.1f}", *us) : "-";
  };
  for (const auto& [mode, steps] : logged.modes) {
    modes.add({mode, std::to_string(steps), cell(median_of(logged.host_us, mode)),
               cell(median_of(logged.gpu_us, mode))});
  }
  text += modes.text();
  if (logged.reasons.empty()) return text;
  Table reasons({"why not as wanted", "steps"});
  for (const auto& [reason, steps] : logged.reasons)
    reasons.add({reason, std::to_string(steps)});
  return text + reasons.text();
}

std::string report_text(const Report& report) {
  std::string text = fmt::format(
      "{}: {} steps{}\n", report.log, report.steps(),
      report.num_idle > 0 ? fmt::format(", {} idle ones left out", report.num_idle) : "");
  text += fmt::format("hit rate {}, {} steps above the ladders ({})\n\n",
                      percent(report.hit_rate()), report.steps() - report.hits(), kAboveLadder);
  for (const LadderPrices& prices : report.ladders)
    text += ladder_text(prices) + (&prices == &report.ladders.back() ? "" : "\n");
  return text + logged_text(report.logged) + "\n" + planning::coverage_text(report.planned);
}

json::object counts_json(const std::map<std::string, int64_t>& counts) {
  json::object out;
  for (const auto& [name, steps] : counts)
    out[name] = steps;
  return out;
}

json::object times_json(const std::map<std::string, std::vector<double>>& times) {
  json::object out;
  for (const auto& [mode, values] : times)
    out[mode] = *median_of(times, mode);
  return out;
}

json::object report_json(const Report& report) {
  json::object reasons;
  if (report.hits() < report.steps()) reasons[kAboveLadder] = report.steps() - report.hits();
  json::object out{{"log", report.log},
                   {"steps", report.steps()},
                   {"idle", report.num_idle},
                   {"hits", report.hits()},
                   {"hit_rate", report.hit_rate()},
                   {"padding", report.padding()},
                   {"reasons", std::move(reasons)}};
  for (const LadderPrices& prices : report.ladders) {
    json::object ladder = planning::ladder_json(prices.chosen);
    ladder["what"] = prices.workload.what;
    ladder["counts"] = prices.workload.rows;
    ladder["sizes"] = planning::sizes_json(prices.chosen.ladder);
    ladder["steps"] = prices.chosen.price.steps;
    ladder["hits"] = prices.chosen.price.hits;
    json::array histogram;
    for (const planning::SizeCount& count : prices.workload.histogram)
      histogram.push_back(json::array{count.size, count.steps});
    ladder["histogram"] = std::move(histogram);
    ladder["verdict"] = planning::verdict_text(prices.chosen, prices.workload);
    ladder["largest_step"] =
        prices.workload.histogram.empty() ? 0 : prices.workload.histogram.back().size;
    json::array schedules;
    for (const planning::PricedLadder& other : prices.others)
      schedules.push_back(planning::ladder_json(other));
    ladder["schedules"] = std::move(schedules);
    out[prices.workload.key] = std::move(ladder);
  }
  out["coverage"] = planning::coverage_json(report.planned);
  const Logged& logged = report.logged;
  out["logged"] = json::object{
      {"modes", counts_json(logged.modes)},
      {"reasons", counts_json(logged.reasons)},
      {"padding", logged.padding ? json::value(*logged.padding) : json::value(nullptr)},
      {"median_host_us", times_json(logged.host_us)},
      {"median_gpu_us", times_json(logged.gpu_us)}};
  return out;
}

void print_eligibility(const GraphsOptions& options) {
  print(options.json ? json::to_text(json::object{{"rules", planning::eligibility_json()}}) + "\n"
                     : planning::eligibility_text());
}

void print_compatibility(const GraphsOptions& options) {
  print(options.json
            ? json::to_text(json::object{{"features", loader::compatibility_json()}}) + "\n"
            : loader::compatibility_text());
}

void print_coverage(const GraphsOptions& options) {
  const planning::PlannedCoverage planned = planning::plan_coverage(graphs_load_options(options));
  print(options.json
            ? json::to_text(json::object{{"coverage", planning::coverage_json(planned)}}) + "\n"
            : planning::coverage_text(planned));
}

// Checks that only one report is asked for and that each flag belongs to it, so that no flag is
// silently ignored.
void check_reports(const GraphsOptions& options) {
  const bool of_log = options.coverage || !options.log.empty() || !options.html.empty();
  if (int{options.estimate} + int{options.measure} + int{options.eligibility} +
          int{options.compatibility} + int{of_log} >
      1) {
    fail(ErrorKind::kUsage,
         "--estimate, --measure, --eligibility and --compatibility are reports of their own: give "
         "one of them, without --log, --coverage and --html");
  }
  if (!options.html.empty() && options.log.empty())
    fail(ErrorKind::kUsage, "--html shows the steps of a log: give --log FILE as well");
  if (options.replays > 0 && !options.measure)
    fail(ErrorKind::kUsage, "--replays counts the steps of --measure: give both");
}

void graphs(const GraphsOptions& options) {
  check_reports(options);
  if (options.estimate) return estimate_graphs(options);
  if (options.eligibility) return print_eligibility(options);
  if (options.compatibility) return print_compatibility(options);
  if (options.coverage && options.log.empty()) return print_coverage(options);
  if (options.measure) return measure_graphs(options);
  if (options.log.empty()) {
    fail(ErrorKind::kUsage,
         "give --log FILE, --coverage, --eligibility, --compatibility, or --model MODEL with "
         "--estimate or --measure");
  }
  const Report report = make_report(options);
  const json::object object = report_json(report);
  if (!options.html.empty())
    write_file(options.html, measure::report_page("graphs", report.log, object));
  print(options.json ? json::to_text(object) + "\n" : report_text(report));
}

}  // namespace

void add_graphs(Command& app) {
  Command* verb = app.add_subcommand(
      "graphs", "Coverage, hit rate and padding of a log's steps; what recordings cost");
  auto options = std::make_shared<GraphsOptions>();  // shared by the parser and the callback
  verb->add_option("--log", options->log, "The step log to report on")->type_name("FILE");
  verb->add_option("--html", options->html, "Write the report as a page with ladders as well")
      ->type_name("FILE");
  verb->add_flag("--estimate", options->estimate,
                 "Predict nodes, recording time and memory by size instead");
  verb->add_flag(
      "--measure", options->measure,
      "Load --model once a ladder; what each costs and gives, predicted and measured: of "
      "--decode-ladder and --token-ladder, or else of many");
  verb->add_option(
          "--replays", options->replays,
          "With --measure: steps of every size between two looks at the driver's figure of "
          "used memory")
      ->range(0, 1000000)
      ->type_name("N")
      ->capture_default_str();
  verb->add_flag("--coverage", options->coverage,
                 "Which of all admissible steps are replayed, and how, without a log");
  verb->add_flag("--eligibility", options->eligibility,
                 "The table of rules by which a step is replayed or not");
  verb->add_flag("--compatibility", options->compatibility,
                 "How steps are recorded with each feature, and the test that shows it");
  add_json_flag(*verb, options->json);
  verb->group("Recordings: what they take, and which ops may have some",
              {"--measure", "--replays", "--eligibility", "--compatibility"});
  verb->group("Output: how results are printed", {"--json"});
  using config::Group;
  take_options(*verb, options->settings,
               {.groups = {Group::kModel, Group::kDevice, Group::kGraphs, Group::kLadders,
                           Group::kSizes, Group::kCompiler},
                .also = {"tensor_parallel"},
                .but = {"kv_tokens", "free_gpu_memory_fraction", "memory_reserve"}});
  verb->footer(footer());
  verb->callback([options] { graphs(*options); });
}

}  // namespace encore::cli
