// Implements `encore bench`, and what its verbs share.
#include "cli/bench.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rounding.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "loader/memory_plan.h"
#include "measure/report.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
void add_bench_options(Command& verb, BenchOptions& options,
                       std::initializer_list<config::Group> more) {
  add_batch_option(verb, options);
  add_runs_option(verb, options, kBenchRuns);
  using config::Group;
  std::vector<Group> groups = {Group::kParallel, Group::kGraphs, Group::kRecording, Group::kLoop,
                               Group::kDiagnosis};
  for (const Group group : more)
    groups.push_back(group);
  add_bench_model_options(verb, options, groups);
}

void add_bench_model_options(Command& verb, BenchOptions& options,
                             const std::vector<config::Group>& more,
                             std::vector<std::string_view> but) {
  verb.add_option("--context", options.context, "Tokens of each prompt")
      ->range(int64_t{1}, int64_t{1} << 24)
      ->type_name("C")
      ->capture_default_str();
  add_json_flag(verb, options.json);
  using config::Group;
  Taken taken{
      .groups = {Group::kModel, Group::kDevice, Group::kLadders, Group::kSizes, Group::kCompiler},
      .but = std::move(but)};
  for (const Group group : more)
    taken.groups.push_back(group);
  take_options(verb, options.settings, taken);
}

void add_batch_option(Command& verb, BenchOptions& options) {
  verb.add_option("--batch", options.batch, "Sequences at a time, 1 to 4096")
      ->range(int64_t{1}, int64_t{4096})
      ->type_name("B")
      ->capture_default_str();
}

void add_runs_option(Command& verb, BenchOptions& options, const measure::ByDevice& otherwise) {
  verb.add_option("--runs", options.runs,
                  "Runs, of which the median counts. Default: " + otherwise.text())
      ->range(1, 1000)
      ->type_name("N");
}

void add_steps_option(Command& verb, std::optional<int64_t>& steps,
                      const measure::ByDevice& otherwise) {
  verb.add_option("--steps", steps, "Steps that are timed in a run. Default: " + otherwise.text())
      ->range(int64_t{1}, int64_t{1} << 20)
      ->type_name("N");
}

void add_replays_option(Command& verb, std::optional<int>& runs) {
  verb.add_option("--runs", runs,
                  "Replays, of which the median counts. Default: " + measure::kReplays.text())
      ->range(1, 1000);
}

loader::LoadOptions decode_load_options(const BenchOptions& options) {
  loader::LoadOptions load = setup::load_options(options.settings);
  load.record_all_modes = !options.settings.graphs;
  load.limits.max_batch_size =
      std::max(options.batch, options.settings.max_batch_size.value_or(options.batch));
  load.limits.max_num_tokens = options.settings.max_num_tokens.value_or(
      std::max(std::min(options.batch * options.context, kDefaultMaxNumTokens), 2 * options.batch));
  if (!options.settings.max_batch_size) load.sequences = runtime::Ladder({options.batch});
  load.tokens = runtime::Ladder({load.limits.max_num_tokens});
  return load;
}

std::unique_ptr<loader::LoadedModel> load_model(Device& device, const BenchOptions& options,
                                                loader::LoadOptions load, int64_t longest) {
  const model::ModelSource source = setup::open_source(options.settings);
  load.limits.max_seq_len = setup::sequence_limit(options.settings, source.config, longest);
  // KV must hold every sequence at its longest, plus one page per sequence: a new sequence is
  // admitted only while one page is free for each running sequence.
  if (!load.kv_tokens) {
    load.kv_tokens = options.batch *
                     (round_up(longest + load.limits.num_drafts, load.page_size) + load.page_size);
  }
  setup::set_ladders(options.settings, load);
  if (load.limits.max_batch_size < options.batch) {
    fail(ErrorKind::kUsage,
         "--batch {}: --decode-ladder ends at {}, where the scheduler splits; add a larger size or "
         "take --above-ladder eager",
         options.batch, load.limits.max_batch_size);
  }
  return setup::open_model(device, source, load, options.settings);
}

Bench open_bench(const BenchOptions& options, loader::LoadOptions load, int64_t longest) {
  Bench bench;
  bench.step_log = setup::open_step_log(options.settings);
  bench.loop = setup::engine_options(options.settings, bench.step_log.get());
  bench.device = setup::open_device(options.settings);
  bench.read_bandwidth = bench.device->read_bandwidth();
  bench.model = load_model(*bench.device, options, std::move(load), longest);
  return bench;
}

std::vector<runtime::Graphs> bench_modes(const BenchOptions& options,
                                         std::vector<runtime::Graphs> all) {
  if (!options.settings.graphs) return all;
  return {*options.settings.graphs};
}

std::string_view mode_name(runtime::Graphs graphs) {
  switch (graphs) {
    case runtime::Graphs::kNone:
      return "eager";
    case runtime::Graphs::kPiecewise:
      return "piecewise";
    case runtime::Graphs::kFull:
      return "full";
    case runtime::Graphs::kFullDecodeOnly:
      return "full-decode-only";
    case runtime::Graphs::kFullAndPiecewise:
      return "full-and-piecewise";
    case runtime::Graphs::kAuto:
      break;
  }
  return "auto";
}

std::string ran_as(const engine::Engine& engine) {
  const auto counts = engine.step_counts();
  const auto most = std::max_element(
      counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.steps < b.steps; });
  return most == counts.end() ? "" : std::string(name(most->mode));
}

std::unique_ptr<Tracer> open_tracer(Device& device, TraceDetail detail, std::string& why_not) {
  try {
    return device.create_tracer(detail);
  } catch (const Error& error) {
    why_not = error.what();
    std::replace(why_not.begin(), why_not.end(), '\n', ' ');
    return nullptr;
  }
}

json::object bench_json(std::string_view verb, const BenchOptions& options, Bench& bench) {
  loader::LoadedModel& model = *bench.model;
  return {{"verb", std::string("bench ").append(verb)},
          {"model", model_text(options.settings)},
          {"device", bench.device->info().name},
          {"dtype", name(model.dtype())},
          {"kv_dtype", name(model.kv_dtype())},
          {"batch", options.batch},
          {"context", options.context},
          {"read_bandwidth_gb_per_s", bench.read_bandwidth / 1e9},
          {"load_s", model.load_seconds()},
          {"memory", measure::memory_json(loader::memory_plan(model))},
          {"recordings", measure::recordings_json(model.recording_stats())}};
}

std::string bench_title(std::string_view verb, const BenchOptions& options, Bench& bench) {
  const std::string bandwidth = bench.read_bandwidth > 0
                                    ? fmt::format("reads {:.1f} GB/s", bench.read_bandwidth / 1e9)
                                    : "read bandwidth not measured";
  return fmt::format("{}: {}, {}, batch {}, context {}\n{}, {}\n\n", verb,
                     model_text(options.settings),
                     dtype_text(bench.model->dtype(), bench.model->kv_dtype()), options.batch,
                     options.context, bench.device->info().name, bandwidth);
}

void add_bench(Command& app) {
  Command* bench = app.add_subcommand(
      "bench",
      "How fast it is: decode, ladder, prefill, mixed, serve, speculate, drafts, "
      "stack, linear, attention, collectives, sampling, sleep, tokenize");
  bench->require_subcommand();
  add_bench_decode(*bench);
  add_bench_ladder(*bench);
  add_bench_prefill(*bench);
  add_bench_mixed(*bench);
  add_bench_serve(*bench);
  add_bench_speculate(*bench);
  add_bench_drafts(*bench);
  add_bench_stack(*bench);
  add_bench_sleep(*bench);
  add_bench_collectives(*bench);
  add_bench_linear(*bench);
  add_bench_attention(*bench);
  add_bench_sampling(*bench);
  add_bench_tokenize(*bench);
}

}  // namespace encore::cli
