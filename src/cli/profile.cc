// encore profile: where a step's time goes, in every mode side by side.
#include "cli/profile.h"

#include <algorithm>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/statistics.h"
#include "cli/bench.h"
#include "cli/decoding.h"
#include "cli/floor.h"
#include "cli/open.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace encore::cli {
namespace {

constexpr int64_t kWarmUpTokens = 8;

constexpr const char* kFooter =
    R"(BATCH distinct random prompts of CONTEXT tokens decode, greedily. Timed by the host's clock: `step`, as users see it.
By events: `device`, from the device's coming to a step until its end. Then as many steps again are traced, kernel by
kernel, which slows the host and the launch of a recording: what stands right of `traced` adds up to it. `kernels` is
the time in which a kernel ran, `sampling` the part of it that chooses tokens, `gaps` between a step's work, `idle` from
a step's last work to the next step's first. `overhead` is the share of an untraced step in which no kernel runs.
A kernel's own time is that since all before it had ended: kernels launched early (programmatic launch) wait beside
their predecessor, and that time is their predecessor's.
The floor is what the ops must move over what this device reads at best, measured in the same run, or compute over
what it computes at best, op by op. Without CUPTI (./dev setup fetches it) a GPU's kernels are not traced.)";

struct Options {
  BenchOptions bench;
  std::optional<int64_t> steps;
  std::string html;
};

DecodingOptions decoding_options(const Options& options, int64_t steps) {
  DecodingOptions decoding;
  decoding.batch = options.bench.batch;
  decoding.context = options.bench.context;
  decoding.burst_steps = options.bench.common.burst_steps;
  decoding.warmup_tokens = kWarmUpTokens;
  decoding.steps = steps + kTracerWarmUpSteps + 1;
  return decoding;
}

void time_steps(Bench& bench, FilledKv& kv, const DecodingOptions& options, int64_t steps,
                ModeProfile& profile) {
  bench.model->executor().set_graphs(profile.graphs);
  const SingleStep single = time_single_steps(kv, options.batch, options.middle());
  profile.device_us = single.device_us;
  engine::Engine engine(*bench.model, bench.loop);
  Decoding decoding(engine, options);
  std::vector<double> steps_us;
  const double cpu_start = thread_cpu_seconds();
  while (std::ssize(steps_us) < steps) {
    const double start = now_seconds();
    const int64_t count = decoding.step();
    steps_us.insert(steps_us.end(), count,
                    (now_seconds() - start) * 1e6 / static_cast<double>(count));
  }
  profile.step_us = median(steps_us);
  profile.walked = walked(engine);
  if (bench.device->kind() == DeviceKind::kCpu) return;
  profile.enqueue_us = single.enqueue_us;
  profile.cpu_us = (thread_cpu_seconds() - cpu_start) * 1e6 / static_cast<double>(steps_us.size());
}

StepTimes trace_mode(Bench& bench, Tracer& tracer, const DecodingOptions& options, int64_t steps,
                     const std::vector<NodeGroup>& groups, runtime::Graphs graphs) {
  bench.model->executor().set_graphs(graphs);
  engine::Engine engine(*bench.model, bench.step_by_step());
  Decoding decoding(engine, options);
  return step_times(trace_steps(tracer, decoding, steps + 1), groups);
}

std::vector<NodeGroup> node_groups(const ir::Graph& graph, const std::vector<NodeFloor>& floors) {
  std::vector<NodeGroup> groups;
  for (size_t i = 0; i < floors.size(); ++i) {
    const ir::Op& op = *graph.nodes()[i].op;
    if (!op.is_view) groups.push_back({op.name, floors[i].group});
  }
  return groups;
}

Profile run_profile(const Options& options, Bench& bench) {
  const int64_t steps = options.steps.value_or(bench.device->kind() == DeviceKind::kCpu ? 8 : 32);
  const DecodingOptions decoding = decoding_options(options, steps);
  const ir::Graph& graph = bench.model->compiled().program.graph;
  const Rates best = rates(bench.device->kind(), bench.read_bandwidth);
  const std::vector<NodeFloor> floors = node_floors(graph, {decoding.batch, decoding.batch},
                                                    decoding.batch * decoding.middle(), best);

  Profile profile;
  profile.floor_text = rates_text(best);
  profile.floor_us = floor_us(floors);
  for (const NodeGroup& node : node_groups(graph, floors))
    profile.floors[node.group].nodes += 1;
  for (const NodeFloor& node : floors) {
    const auto group = profile.floors.find(node.group);
    if (group == profile.floors.end()) continue;  // a view
    group->second.bytes += node.bytes;
    group->second.flops += node.flops;
    group->second.us += node.us;
  }
  using runtime::Graphs;
  FilledKv kv(*bench.model);
  for (const Graphs graphs :
       bench_modes(options.bench, {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull})) {
    ModeProfile mode{graphs, std::string(mode_name(graphs))};
    time_steps(bench, kv, decoding, steps, mode);
    profile.modes.push_back(std::move(mode));
  }
  // After everything is timed, because a profiler stays in the process and slows it down.
  const auto tracer = open_tracer(*bench.device, TraceDetail::kLaunches, profile.no_tracer);
  for (ModeProfile& mode : profile.modes) {
    if (!tracer) break;
    mode.times =
        trace_mode(bench, *tracer, decoding, steps, node_groups(graph, floors), mode.graphs);
  }
  return profile;
}

void profile_verb(const Options& options) {
  // The device decides how many steps there are, so ask as for the most.
  const engine::LoadOptions load = decode_load_options(options.bench);
  const DecodingOptions longest = decoding_options(options, options.steps.value_or(32));
  Bench bench =
      open_bench(options.bench, load, options.bench.context + longest.max_tokens(load.limits));
  Profile profile = run_profile(options, bench);
  profile.what =
      fmt::format("{}, {}, batch {}, context {}, on {}",
                  options.bench.common.model.empty() ? "stories" : options.bench.common.model,
                  dtype_text(bench.model->dtype(), bench.model->kv_dtype()), options.bench.batch,
                  options.bench.context, bench.device->info().name);
  if (!options.html.empty()) write_file(options.html, profile_html(profile));
  if (options.bench.json) {
    json::object out = bench_json("profile", options.bench, bench);
    out["verb"] = "profile";
    for (auto& [key, value] : profile_json(profile))
      out[key] = std::move(value);
    return print(to_text(out) + "\n");
  }
  print(profile_text(profile));
}

}  // namespace

void add_profile(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("profile", "Where a step's time goes, in every mode");
  auto options = std::make_shared<Options>();  // shared by the parser's options and the callback
  add_bench_model_options(*verb, options->bench);
  add_batch_option(*verb, options->bench);
  add_graphs_option(*verb, options->bench.common);
  verb->add_option("--steps", options->steps,
                   "Steps that are timed, and as many that are traced. Default: 32, on the CPU 8")
      ->check(CLI::Range(int64_t{2}, int64_t{4096}))
      ->type_name("N");
  verb->add_option("--html", options->html,
                   "Also write a page with a timeline of every mode: one file, nothing loaded")
      ->type_name("FILE");
  verb->footer(kFooter);
  verb->callback([options, verb] {
    apply_config(*verb, options->bench.common.config);
    profile_verb(*options);
  });
}

}  // namespace encore::cli
