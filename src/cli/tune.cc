// Implements `encore tune`, which finds the ladders that pad the steps of a log least.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/table.h"
#include "cli/command.h"
#include "cli/graphs_estimate.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/options.h"
#include "planning/cost_model.h"
#include "planning/ladder_report.h"
#include "planning/step_log_reader.h"

namespace encore::cli {
namespace {

constexpr const char* kTuneFooter =
    R"(LOG is a step log (--step-log of `encore generate` and `encore bench`), any JSON lines with
context_tokens and generation_requests, or TensorRT-LLM's iteration log. A step without context tokens is
matched on its requests, any other on the sum. The sizes are the best there are, by dynamic programming, with
size 1 in the decode ladder whatever it saves (--without-one: only where it pads least).

--budget K takes at most K sizes for each ladder. --memory BYTES takes as many as their recordings fit in together, by
`encore graphs --estimate` for --model and --device, and divides them between the two ladders so that the steps cost least.

A ladder ends at the log's largest size, or where --times FILE, the JSON of `encore bench ladder --beside eager`, says that
replays stop paying; larger steps run eager, as `above_ladder: eager` in the result says. With --max-batch-size and
--max-num-tokens ladders end there, no step is larger, and the result has these limits.

--by padding weighs a step by the rows it launches for nothing. --by time weighs it by the time that the size it
is launched at takes: gpu_us (TensorRT-LLM: iterLatencyMS), the median by size, made to rise with it, lines between.
Default: time for a ladder whose steps have times at two sizes or more, else padding.

stdout is YAML with the prices as comments: encore tune steps.jsonl --budget 32 > ladders.yaml
or, say, encore tune steps.jsonl --memory 50MB --model DIR --times decode.json --times prompts.json
`waste` is padding over all rows launched; `optimum of as many` the padding of the best ladder with that number of
sizes and that largest size. Other engines' schedules go up to --max-batch-size or --max-num-tokens, by default to their
own size that holds the log's largest step. A start whose limit is below the ladder's largest size leaves out what is
above, and says so.)";

// Sets the most sizes that a ladder may have; nobody would record more.
constexpr int64_t kMostSizes = 4096;

struct TuneOptions {
  std::string log;
  std::optional<int64_t> budget;
  std::string memory;
  std::vector<std::string> times;
  std::string by = "auto";
  bool without_one = false;
  config::Settings settings;
  std::string out;
  bool json = false;
};

// Holds a workload and its best ladder.
struct Tuned {
  planning::Workload workload;
  bool by_time = false;
  std::string end_from;  // the --times file that ends the ladder; empty: no file does
  std::optional<planning::PricedLadder> best;  // absent without steps or a limit
  std::vector<planning::PricedLadder> schedules;
  int64_t bytes = 0;  // bytes of the recordings; set where memory has a budget

  [[nodiscard]] bool is_decode() const { return workload.key == "decode"; }
  [[nodiscard]] planning::OptimalLadders::Cost cost() const {
    if (by_time) return [times = *workload.times](int64_t size) { return times(size); };
    return [](int64_t size) { return static_cast<double>(size); };
  }
  [[nodiscard]] planning::TunedLadders ladders(const TuneOptions& options,
                                               int64_t max_sizes) const {
    return {workload.histogram, workload.max, max_sizes, cost(),
            is_decode() && !options.without_one};
  }
  void choose(const runtime::Ladder& ladder) {
    best = planning::price_ladder("tuned", ladder, workload);
  }
};

Tuned prepared(const TuneOptions& options, planning::Workload workload) {
  if (options.by == "time" && !workload.times && !workload.histogram.empty()) {
    fail(ErrorKind::kUsage, "--by time: {} has no times of {} at two sizes or more", options.log,
         workload.what);
  }
  Tuned tuned;
  tuned.by_time = options.by != "padding" && workload.times;
  tuned.workload = std::move(workload);
  return tuned;
}

// Ends the ladder whose steps the file has timed at the size where a replay stops paying. Errors:
// kUsage for a file of another kind; kModel for a file that cannot be read.
void end_where_replays_pay(const std::string& file, Tuned& decode, Tuned& tokens) {
  const json::value value = json::parse_file(file);
  const json::Object times(value, file);
  if (times.string_or("verb", "") != "bench ladder" || !times.raw().contains("pays_up_to")) {
    fail(ErrorKind::kUsage,
         "--times {}: wants what `encore bench ladder --beside eager --json` prints", file);
  }
  Tuned& tuned = times.string_at("step") == "decode" ? decode : tokens;
  const int64_t last = times.int_or("pays_up_to", 0);
  if (last == 0) {
    log::warning("--times {}: a replay of {} pays at no size; it ends no ladder", file,
                 tuned.workload.what);
  } else if (!tuned.workload.is_limited && last < tuned.workload.max) {
    tuned.workload.max = last;
    tuned.end_from = file;
  }
}

// Holds ladders of 1, 2, 3 ... sizes. For each ladder, also holds the bytes of its recordings and
// the cost of all steps of the workload with it.
struct Choices {
  std::vector<runtime::Ladder> ladders;
  std::vector<int64_t> bytes;
  std::vector<double> costs;
};

Choices choices(const TuneOptions& options, const Tuned& tuned, bool by_time, int64_t budget,
                const RecordingMemory& memory) {
  Choices choices;
  if (tuned.workload.max == 0) return {{runtime::Ladder()}, {0}, {0}};
  const auto num_sizes = static_cast<int64_t>(tuned.workload.histogram.size()) + 2;
  const int64_t most =
      std::clamp<int64_t>(budget / static_cast<int64_t>(planning::kBytesPerExecutable), 1,
                          std::min(kMostSizes, num_sizes));
  const planning::TunedLadders ladders = tuned.ladders(options, most);
  std::map<int64_t, int64_t> bytes_of;  // key: size; value: bytes of a recording of that size
  for (int64_t count = 1; count <= most; ++count) {
    runtime::Ladder ladder = ladders.ladder(count);
    int64_t bytes = 0;
    for (const int64_t size : ladder.sizes()) {
      const auto [place, is_new] = bytes_of.try_emplace(size, 0);
      if (is_new) place->second = memory.bytes(tuned.is_decode(), runtime::Ladder({size}));
      bytes += place->second;
    }
    if (bytes > budget) break;
    choices.bytes.push_back(bytes);
    const planning::Histogram& histogram = tuned.workload.histogram;
    choices.costs.push_back(by_time && tuned.workload.times
                                ? planning::total_us(histogram, ladder, *tuned.workload.times)
                                : static_cast<double>(planning::price(histogram, ladder).padding));
    choices.ladders.push_back(std::move(ladder));
  }
  return choices;
}

// Chooses the pair of ladders whose recordings fit in the memory and with which all steps together
// cost least.
void tune_by_memory(const TuneOptions& options, Tuned& decode, Tuned& tokens) {
  config::Option amount = *config::find_option("memory_reserve");
  amount.name = "--memory";
  const auto budget = std::get<config::Amount>(config::read_flag(amount, {options.memory}));
  if (budget.share > 0) fail(ErrorKind::kUsage, "--memory: bytes, such as 50MB, not a share");
  const int64_t largest_batch = std::max<int64_t>(decode.workload.max, 1);
  const RecordingMemory memory = recording_memory(options.settings, largest_batch);
  // Costs are times only if both workloads have times, because times and rows of padding cannot be
  // added.
  const auto has_times = [](const Tuned& tuned) {
    return tuned.by_time || tuned.workload.histogram.empty();
  };
  const bool by_time = has_times(decode) && has_times(tokens);
  const Choices of_decode = choices(options, decode, by_time, budget.bytes, memory);
  const Choices of_tokens = choices(options, tokens, by_time, budget.bytes, memory);
  std::optional<std::pair<size_t, size_t>> best;
  const auto cost = [&](const std::pair<size_t, size_t>& pair) {
    return std::pair(of_decode.costs[pair.first] + of_tokens.costs[pair.second],
                     of_decode.bytes[pair.first] + of_tokens.bytes[pair.second]);
  };
  for (size_t i = 0; i < of_decode.ladders.size(); ++i) {
    for (size_t j = 0; j < of_tokens.ladders.size(); ++j) {
      const std::pair pair(i, j);
      if (cost(pair).second <= budget.bytes && (!best || cost(pair) < cost(*best))) best = pair;
    }
  }
  if (!best) {
    fail(ErrorKind::kUsage,
         "--memory {}: recordings of the largest sizes alone take more; give more memory, or lower "
         "--max-batch-size and --max-num-tokens",
         options.memory);
  }
  const auto take = [](Tuned& tuned, const Choices& choices, size_t chosen) {
    if (tuned.workload.max == 0) return;
    tuned.choose(choices.ladders[chosen]);
    tuned.bytes = choices.bytes[chosen];
  };
  take(decode, of_decode, best->first);
  take(tokens, of_tokens, best->second);
}

std::string yaml_key(const planning::Workload& workload) {
  return workload.key == "decode" ? "decode_ladder" : "token_ladder";
}

std::string ladder_line(const Tuned& tuned) {
  if (!tuned.best) return "";
  return fmt::format("{}: [{}]\n", yaml_key(tuned.workload),
                     planning::sizes_text(tuned.best->ladder));
}

// Returns a line that sets the limit that the user gave; an empty text without one.
std::string limit_line(std::string_view option, const Tuned& tuned) {
  return tuned.workload.is_limited ? fmt::format("{}: {}\n", option, tuned.workload.max) : "";
}

// Returns the ladders as YAML, with the given limits. A ladder without a given limit adds
// `above_ladder: eager`, as larger steps may come and run eager.
std::string yaml_of(const Tuned& decode, const Tuned& tokens) {
  const auto has_end = [](const Tuned& tuned) { return tuned.best && !tuned.workload.is_limited; };
  return ladder_line(decode) + ladder_line(tokens) + limit_line("max_batch_size", decode) +
         limit_line("max_num_tokens", tokens) +
         (has_end(decode) || has_end(tokens) ? "above_ladder: eager\n" : "");
}

std::string report(const Tuned& tuned) {
  const planning::Workload& workload = tuned.workload;
  if (!tuned.best) return fmt::format("{}: none in the log\n", workload.what);
  const int64_t steps = tuned.best->price.steps;
  std::vector<planning::PricedLadder> rows{*tuned.best};
  rows.insert(rows.end(), tuned.schedules.begin(), tuned.schedules.end());
  const std::string end =
      tuned.end_from.empty() ? "" : ", where replays stop paying (" + tuned.end_from + ")";
  return fmt::format("{} {}, up to {} {}{}; tuned by {}\n{}", steps, workload.what, workload.max,
                     workload.rows, end, tuned.by_time ? "time" : "padding",
                     planning::ladder_table(rows).text());
}

json::object tuned_json(const Tuned& tuned) {
  json::array schedules;
  for (const planning::PricedLadder& ladder : tuned.schedules)
    schedules.push_back(planning::ladder_json(ladder));
  if (!tuned.best) return {{"sizes", json::array()}, {"padding", 0}, {"steps", 0}};
  json::object out{{"sizes", planning::sizes_json(tuned.best->ladder)},
                   {"padding", tuned.best->price.padding},
                   {"steps", tuned.best->price.steps},
                   {"hit_rate", tuned.best->price.hit_rate()},
                   {"waste", tuned.best->price.waste()},
                   {"by", tuned.by_time ? "time" : "padding"}};
  if (tuned.best->total_us) out["total_us"] = *tuned.best->total_us;
  if (tuned.bytes > 0) out["bytes"] = tuned.bytes;
  out["schedules"] = std::move(schedules);
  return out;
}

void run_tune(const TuneOptions& options) {
  if (options.budget.has_value() != options.memory.empty())
    fail(ErrorKind::kUsage, "say how large ladders may be: --budget K or --memory BYTES");
  if (!options.memory.empty() && options.settings.model.empty())
    fail(ErrorKind::kUsage, "--memory is that of a model's recordings: give --model as well");
  const auto steps = planning::read_step_log(options.log);
  auto [decode_work, token_work] =
      planning::workloads(steps, options.settings.max_batch_size, options.settings.max_num_tokens);
  Tuned decode = prepared(options, std::move(decode_work));
  Tuned tokens = prepared(options, std::move(token_work));
  for (const std::string& file : options.times)
    end_where_replays_pay(file, decode, tokens);
  if (!options.memory.empty()) tune_by_memory(options, decode, tokens);
  for (Tuned* tuned : {&decode, &tokens}) {
    if (options.budget && tuned->workload.max > 0)
      tuned->choose(tuned->ladders(options, *options.budget).ladder(*options.budget));
    tuned->schedules = planning::price_schedules(tuned->workload);
  }

  const std::string budget =
      options.budget ? fmt::format("at most {} sizes a ladder", *options.budget)
                     : fmt::format("recordings of {} in {} together",
                                   bytes_text(decode.bytes + tokens.bytes), options.memory);
  const std::string title = fmt::format("encore tune: {} steps, {}\n\n", steps.size(), budget);
  const std::string text = title + report(decode) + "\n" + report(tokens);
  const std::string yaml = commented(text) + yaml_of(decode, tokens);
  if (!options.out.empty()) write_file(options.out, yaml);
  if (options.json) {
    return print(json::to_text(
                     json::object{{"decode", tuned_json(decode)}, {"tokens", tuned_json(tokens)}}) +
                 "\n");
  }
  print(options.out.empty() ? yaml : text);
}

}  // namespace

void add_tune(Command& app) {
  Command* verb = app.add_subcommand("tune", "The ladders that pad the steps of a log least");
  auto options =
      std::make_shared<TuneOptions>();  // shared by the parser's options and the callback
  verb->add_option("log", options->log, "The step log")->type_name("LOG")->required();
  verb->add_option("--budget", options->budget, "Sizes of each ladder at most, 1 to 4096")
      ->range(int64_t{1}, kMostSizes)
      ->type_name("K");
  verb->add_option("--memory", options->memory,
                   "Memory that the recordings of both ladders may take together, such as 50MB; "
                   "wants --model")
      ->type_name("BYTES");
  verb->add_option("--times", options->times,
                   "Ends a ladder where replays stop paying: the JSON of `encore bench ladder "
                   "--beside eager`, one of decode steps or of prompts or both")
      ->type_name("FILE");
  verb->add_option("--by", options->by, "What a step costs: auto, padding or time")
      ->one_of({"auto", "padding", "time"})
      ->type_name("WHAT")
      ->capture_default_str();
  verb->add_flag("--without-one", options->without_one,
                 "Take size 1 into the decode ladder only where it pads least");
  verb->add_option("--out", options->out, "Write the YAML there, and only the prices to stdout")
      ->type_name("FILE");
  add_json_flag(*verb, options->json);
  take_options(*verb, options->settings,
               {.groups = {config::Group::kModel, config::Group::kDevice},
                .also = {"max_batch_size", "max_num_tokens"}});
  verb->group("Choice: what a step costs, and which sizes there must be",
              {"--by", "--without-one"});
  verb->footer(kTuneFooter);
  verb->callback([options] { run_tune(*options); });
}

}  // namespace encore::cli
