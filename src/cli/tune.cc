// encore tune: the ladders that pad the steps of a log least.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/options.h"
#include "planning/ladder_report.h"
#include "planning/step_log_reader.h"

namespace encore::cli {
namespace {

constexpr const char* kTuneFooter =
    R"(LOG is a step log (--step-log of `encore generate` and `encore bench`), any JSON lines with
context_tokens and generation_requests, or TensorRT-LLM's iteration log. A step without context tokens is
matched on its requests, any other on the sum. The sizes are the best there are, by dynamic programming, with
size 1 in the decode ladder whatever it saves (--without-one: only where it pads least).

--max-batch-size and --max-num-tokens, by default the log's largest, are the ladders' largest sizes; larger steps
do not count.

--by padding weighs a step by the rows it launches for nothing. --by time weighs it by the time that the size it
is launched at takes: gpu_us (TensorRT-LLM: iterLatencyMS), the median by size, made to rise with it, lines between.
Default: time for a ladder whose steps have times at two sizes or more, else padding.

stdout is YAML with the prices as comments: encore tune steps.jsonl --budget 32 > ladders.yaml
`waste` is padding over all rows launched; `optimum of as many` the padding of the best ladder with that number of
sizes and that largest size. Other engines' schedules go up to --max-batch-size or --max-num-tokens, by default to their
own size that holds the log's largest step. A start whose limit is below the ladder's largest size leaves out what is
above, and says so.)";

struct TuneOptions {
  std::string log;
  int64_t budget = 0;
  std::string by = "auto";
  bool without_one = false;
  config::Settings settings;
  std::string out;
  bool json = false;
};

// A workload's best ladder.
struct Tuned {
  planning::Workload workload;
  bool by_time = false;
  std::optional<planning::PricedLadder> best;  // nothing without steps or a limit
  std::vector<planning::PricedLadder> schedules;
};

Tuned tune(const TuneOptions& options, planning::Workload workload) {
  Tuned tuned;
  if (options.by == "time" && !workload.times && !workload.histogram.empty()) {
    fail(ErrorKind::kUsage, "--by time: {} has no times of {} at two sizes or more", options.log,
         workload.what);
  }
  tuned.by_time = options.by != "padding" && workload.times;
  tuned.schedules = planning::price_schedules(workload);
  if (workload.max > 0) {
    const auto cost = [&](int64_t size) {
      return tuned.by_time ? (*workload.times)(size) : static_cast<double>(size);
    };
    const bool with_one = workload.key == "decode" && !options.without_one;
    tuned.best = planning::price_ladder(
        "tuned",
        planning::tuned_ladder(workload.histogram, workload.max, options.budget, cost, with_one),
        workload);
  }
  tuned.workload = std::move(workload);
  return tuned;
}

std::string yaml_key(const planning::Workload& workload) {
  return workload.key == "decode" ? "decode_ladder" : "token_ladder";
}

std::string ladder_line(const Tuned& tuned) {
  if (!tuned.best) return "";
  return fmt::format("{}: [{}]\n", yaml_key(tuned.workload),
                     planning::sizes_text(tuned.best->ladder));
}

int64_t largest_size(const Tuned& tuned) {
  return tuned.best ? tuned.best->ladder.sizes().back() : 0;
}

// An option that the ladders need to be this large; none when it cannot be.
std::string limit_line(std::string_view option, int64_t size) {
  const bool can_be =
      size > 0 && size <= static_cast<int64_t>(config::find_option(option)->range.max);
  return can_be ? fmt::format("{}: {}\n", option, size) : std::string();
}

// The ladders, and the limits under which they may be as large as they are.
std::string yaml_of(const Tuned& decode, const Tuned& tokens) {
  return ladder_line(decode) + ladder_line(tokens) +
         limit_line("max_batch_size", largest_size(decode)) +
         limit_line("max_num_tokens", std::max(largest_size(decode), largest_size(tokens)));
}

std::string report(const Tuned& tuned) {
  const planning::Workload& workload = tuned.workload;
  if (!tuned.best) return fmt::format("{}: none in the log\n", workload.what);
  const int64_t steps = tuned.best->price.steps;
  std::vector<planning::PricedLadder> rows{*tuned.best};
  rows.insert(rows.end(), tuned.schedules.begin(), tuned.schedules.end());
  return fmt::format("{} {}, up to {} {}; tuned by {}\n{}", steps, workload.what, workload.max,
                     workload.rows, tuned.by_time ? "time" : "padding",
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
  out["schedules"] = std::move(schedules);
  return out;
}

void run_tune(const TuneOptions& options) {
  const auto steps = planning::read_step_log(options.log);
  auto [decode_work, token_work] =
      planning::workloads(steps, options.settings.max_batch_size, options.settings.max_num_tokens);
  const Tuned decode = tune(options, std::move(decode_work));
  const Tuned tokens = tune(options, std::move(token_work));

  const std::string title = fmt::format("encore tune: {} steps, at most {} sizes a ladder\n\n",
                                        steps.size(), options.budget);
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
      ->range(int64_t{1}, int64_t{4096})
      ->type_name("K")
      ->required();
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
               {.groups = {}, .also = {"max_batch_size", "max_num_tokens"}});
  verb->footer(kTuneFooter);
  verb->callback([options] { run_tune(*options); });
}

}  // namespace encore::cli
