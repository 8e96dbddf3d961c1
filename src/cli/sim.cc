// Implements `encore sim`, which runs a server's scheduler and pages with a cost model in place of
// the device.
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/rounding.h"
#include "base/table.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "cli/workload.h"
#include "measure/timing.h"
#include "model/shard.h"
#include "planning/coverage_report.h"
#include "planning/step_log_reader.h"
#include "setup/open.h"
#include "setup/serving.h"
#include "traffic/simulation.h"
#include "traffic/step_cost.h"

namespace encore::cli {
namespace {

constexpr const char* kSimFooter =
    R"(Forms the steps that `encore bench serve` would form, with the same options, and asks a cost how long each takes: no
weights, no GPU, a small part of the time. A cost is a file, or is fitted to the steps of a log; it is a function of the
padded tokens of a step, its sequences, and the tokens of KV that they have. --save-cost writes it:

  {"decode": {"us": 310.0, "us_per_token_above": {"0": 1.5, "64": 2.5}, "us_per_sequence": 0.5,
   "us_per_kv_token": 0.004}, "mixed": {"us": 450.0}, "host_us": 12.0}

in microseconds, terms that are left out being 0. us_per_token_above has the price of each token beyond a size. host_us
is what the host takes to plan and launch a step: beside the step before, or between the two with --overlap off, as on
the CPU.

--tensor-parallel N simulates N devices that compute the model together. Their cost is given as that of one is; or, with
--collectives FILE, what `encore bench collectives --tensor-parallel N --json` printed, the cost is that of one device, and
becomes theirs: each has an N-th of what a step costs, and all of them the sums between them besides.

Give the sizes that the server has (--kv-tokens above all): without --kv-tokens there is KV for every sequence at its
longest.

  encore bench serve --trace azure.csv --limit 2000 --step-log steps.jsonl
  encore sim --fit steps.jsonl --save-cost cost.json --trace azure.csv --arrivals trace --kv-tokens 500000
  encore sim --cost cost.json --trace azure.csv --rate 12 --max-batch-size 128 --ttft-ms 500 --tbt-ms 40)";

struct SimOptions {
  config::Settings settings;
  WorkloadOptions workload;
  TrafficOutputOptions output;
  std::string fit;
  std::string cost;
  std::string save_cost;
  std::string collectives;
};

struct Cost {
  traffic::StepCost cost;
  std::string what;
  std::optional<traffic::FitQuality> quality;
};

Cost open_cost(const SimOptions& options, const model::ModelConfig& model) {
  if (options.fit.empty() == options.cost.empty()) {
    fail(ErrorKind::kUsage,
         "say how long steps take: --fit LOG, a log of `encore bench serve --step-log`, or --cost "
         "FILE");
  }
  if (!options.cost.empty())
    return {traffic::read_step_cost(options.cost), "steps cost what " + options.cost + " says", {}};
  traffic::ExpertChoice experts;
  if (model.experts) experts = {model.experts->num_experts, model.experts->num_experts_per_tok};
  const auto [cost, quality] =
      traffic::fit_step_cost(planning::read_step_log(options.fit), options.fit, experts);
  return {cost,
          fmt::format("steps cost what {} of {} took: off by {} in the median, by {} in all",
                      quality.num_steps, options.fit, percent(quality.median_error),
                      percent(quality.total_error)),
          quality};
}

// Returns the exchanges between ranks in a step: two sums in each layer, the sum of the embedding,
// and three exchanges to choose tokens. Those three send the logits that a choice needs, the
// largest logits and the candidates, and count as sums because they are as short.
traffic::StepExchanges exchanges_of(const model::ModelConfig& model,
                                    const loader::LoadOptions& load) {
  const int64_t size = size_of(load.dtype.value_or(model.dtype));
  return {.count = 2 * model.num_layers() + 4, .bytes_per_token = model.hidden_size * size};
}

// Where several ranks compute a step together, replaces the cost of the step on one device by its
// cost on the ranks, exchanges included.
void share_cost(const SimOptions& options, const model::ModelConfig& model,
                const loader::LoadOptions& load, Cost& cost) {
  (void)model::share_of(model, load.rank);
  if (options.collectives.empty()) return;
  const traffic::ExchangeCost exchange = traffic::read_exchange_cost(options.collectives);
  if (exchange.ranks != load.rank.size) {
    fail(ErrorKind::kUsage,
         "--collectives {}: was measured between {} ranks, and --tensor-parallel is {}",
         options.collectives, exchange.ranks, load.rank.size);
  }
  cost.cost = traffic::shared_cost(cost.cost, exchange, exchanges_of(model, load));
  cost.what += fmt::format(", shared by {} ranks, whose sums cost what {} says", exchange.ranks,
                           options.collectives);
}

traffic::SimulationOptions simulation_options(const SimOptions& options,
                                              const model::ModelConfig& model,
                                              const loader::LoadOptions& load) {
  const planning::PlannedCoverage planned = planning::plan_coverage(load);
  traffic::SimulationOptions simulation{.limits = planned.limits,
                                        .coverage = planned.coverage,
                                        .page_size = load.page_size,
                                        .engine = options.settings.serving.engine};
  const int64_t kv_tokens =
      load.kv_tokens.value_or(planned.limits.max_batch_size * planned.limits.max_seq_len);
  simulation.num_pages = div_up(kv_tokens, load.page_size);
  simulation.window_rule = loader::window_rule(model, load);
  if (simulation.window_rule) {
    simulation.num_window_pages = simulation.window_rule->pages_beside(
        simulation.num_pages, simulation.num_pages, planned.limits.max_batch_size);
  }
  return simulation;
}

json::object head_json(const SimOptions& options, const Workload& workload,
                       const traffic::SimulationOptions& simulation, const Cost& cost) {
  json::object out{{"verb", "sim"},
                   {"model", model_text(options.settings)},
                   {"workload", workload.what},
                   {"seed", options.workload.seed},
                   {"ranks", options.settings.load.rank.size},
                   {"max_batch_size", simulation.limits.max_batch_size},
                   {"max_num_tokens", simulation.limits.max_num_tokens},
                   {"target_step_ms", options.settings.serving.engine.target_step_ms.value_or(0)},
                   {"kv_tokens", simulation.num_pages * simulation.page_size},
                   {"window_kv_tokens", simulation.num_window_pages * simulation.page_size},
                   {"cost", traffic::cost_json(cost.cost)},
                   {"fit", nullptr}};
  if (cost.quality) {
    out["fit"] = {{"steps", cost.quality->num_steps},
                  {"median_error", cost.quality->median_error},
                  {"total_error", cost.quality->total_error}};
  }
  return out;
}

void simulate(const SimOptions& options) {
  if (options.settings.serving.engine.burst_steps > 1)
    fail(ErrorKind::kUsage, "--burst-steps {}: a simulation has no bursts",
         options.settings.serving.engine.burst_steps);
  const model::ModelSource source = setup::open_source(options.settings);
  Cost cost = open_cost(options, source.config);
  const loader::LoadOptions load = setup::serving_load_options(options.settings, source.config);
  share_cost(options, source.config, load, cost);
  if (!options.save_cost.empty())
    write_file(options.save_cost, json::to_text(traffic::cost_json(cost.cost)) + "\n");
  const Workload workload =
      make_workload(options.workload, load.limits.max_seq_len, source.config.vocab_size);
  const traffic::SimulationOptions simulation = simulation_options(options, source.config, load);
  check_fits_kv(workload, simulation.num_pages * simulation.page_size);

  const double start = measure::now_seconds();
  measure::TrafficReport report{
      .title = "sim", .record = traffic::simulate(workload.requests, simulation, cost.cost)};
  const double took_s = measure::now_seconds() - start;
  log::info("simulated {:.1f} s in {:.3f} s, {:.0f} times as fast", report.record.wall_s, took_s,
            report.record.wall_s / std::max(took_s, 1e-9));
  report.what = {fmt::format("sim: {}", model_text(options.settings)), workload.what,
                 setup::serving_text(simulation.limits, simulation.num_pages * simulation.page_size,
                                     options.settings.serving.engine),
                 cost.what};
  report.limits = options.output.limits();
  report.busy = "time in which the device runs steps";
  report.figures = traffic::figures(report.record, report.limits);
  print_traffic(report, options.output, head_json(options, workload, simulation, cost));
}

}  // namespace

void add_sim(Command& app) {
  Command* verb = app.add_subcommand("sim", "Simulate a server: its scheduler, without its device");
  auto options = std::make_shared<SimOptions>();  // shared by the parser's options and the callback
  verb->add_option("--fit", options->fit,
                   "A step's time as a step log has it, of `encore bench serve --step-log`")
      ->type_name("LOG");
  verb->add_option("--cost", options->cost, "A step's time as a file says")->type_name("FILE");
  verb->add_option("--save-cost", options->save_cost, "Write the cost to a file for --cost")
      ->type_name("FILE");
  add_workload_options(*verb, options->workload);
  add_traffic_output_options(*verb, options->output);
  using config::Group;
  take_options(
      *verb, options->settings,
      {.groups = {Group::kGraphs, Group::kLadders, Group::kLoop, Group::kSizes, Group::kServing},
       .also = {"model", "tensor_parallel"},
       .but = {"free_gpu_memory_fraction", "memory_reserve"}});
  verb->add_option(
          "--collectives", options->collectives,
          "With --tensor-parallel: the cost is that of one device, and sums between ranks cost "
          "what this says, of `encore bench collectives --json`")
      ->type_name("FILE");
  verb->group("Cost: how long a step takes", {"--save-cost", "--collectives"});
  verb->footer(kSimFooter);
  verb->callback([options] { simulate(*options); });
}

}  // namespace encore::cli
