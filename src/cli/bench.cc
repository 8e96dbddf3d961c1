// encore bench: how fast it is on this machine.
#include "cli/bench.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <set>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/open.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/verbs.h"

namespace encore::cli {
namespace {

constexpr int64_t kDefaultMaxNumTokens = 2048;

}  // namespace

void add_bench_options(CLI::App& verb, BenchOptions& options) {
  add_bench_model_options(verb, options);
  add_batch_option(verb, options);
  add_runs_option(verb, options);
  add_graphs_option(verb, options.common);
  add_recording_options(verb, options.common);
  add_loop_options(verb, options.common);
  add_step_log_option(verb, options.step_log);
}

void add_bench_model_options(CLI::App& verb, BenchOptions& options) {
  options.common.graphs.clear();
  add_model_option(verb, options.common);
  verb.add_option("--context", options.context, "Tokens of each prompt")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->type_name("C")
      ->capture_default_str();
  add_device_options(verb, options.common);
  add_dtype_option(verb, options.common);
  add_size_options(verb, options.common);
  add_ladder_options(verb, options.common);
  add_pass_options(verb, options.common);
  add_config_options(verb, options.common.config);
  add_json_flag(verb, options.json);
}

void add_batch_option(CLI::App& verb, BenchOptions& options) {
  verb.add_option("--batch", options.batch, "Sequences at a time, 1 to 4096")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->type_name("B")
      ->capture_default_str();
}

void add_runs_option(CLI::App& verb, BenchOptions& options) {
  verb.add_option("--runs", options.runs,
                  "Runs, of which the median counts. Default: 5, on the CPU 3")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
}

void add_replays_option(CLI::App& verb, std::optional<int>& runs) {
  verb.add_option("--runs", runs, "Replays, of which the median counts. Default: 15, on the CPU 3")
      ->check(CLI::Range(1, 1000));
}

int num_replays(std::optional<int> runs, const Device& device) {
  return runs.value_or(device.kind() == DeviceKind::kCpu ? 3 : 15);
}

int64_t num_copies(int64_t rotation_mb, int64_t bytes) {
  return std::clamp<int64_t>(((rotation_mb << 20) + bytes - 1) / bytes, 2, 256);
}

engine::LoadOptions decode_load_options(const BenchOptions& options) {
  CommonOptions common = options.common;
  if (common.graphs.empty()) common.graphs = "auto";
  engine::LoadOptions load = load_options(common);
  load.record_all_modes = options.common.graphs.empty();
  load.limits.max_batch_size =
      std::max(options.batch, options.common.max_batch_size.value_or(options.batch));
  load.limits.max_num_tokens = options.common.max_num_tokens.value_or(
      std::max(std::min(options.batch * options.context, kDefaultMaxNumTokens), 2 * options.batch));
  if (!options.common.max_batch_size) load.sequences = runtime::Ladder({options.batch});
  load.tokens = runtime::Ladder({load.limits.max_num_tokens});
  return load;
}

Bench open_bench(const BenchOptions& options, engine::LoadOptions load, int64_t longest) {
  const engine::ModelSource source = open_source(options.common);
  load.limits.max_seq_len = sequence_limit(options.common, source.config, longest);
  if (!load.kv_tokens) load.kv_tokens = options.batch * (longest + load.page_size);
  set_ladders(options.common, load);
  if (load.limits.max_batch_size < options.batch) {
    fail(ErrorKind::kUsage,
         "--batch {}: --decode-ladder ends at {}, where the scheduler splits; add a larger size or "
         "take --above-ladder eager",
         options.batch, load.limits.max_batch_size);
  }
  Bench bench;
  bench.step_log = open_step_log(options.step_log);
  bench.loop = engine_options(options.common, bench.step_log.get());
  bench.device = open_device(options.common);
  bench.read_bandwidth = bench.device->read_bandwidth();
  bench.model = std::make_unique<engine::LoadedModel>(*bench.device, source, load);
  log_start_up(*bench.model, *bench.device);
  return bench;
}

std::vector<runtime::Graphs> bench_modes(const BenchOptions& options,
                                         std::vector<runtime::Graphs> all) {
  if (options.common.graphs.empty()) return all;
  return {runtime::parse_graphs(options.common.graphs)};
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

std::string walked(const engine::Engine& engine) {
  const auto counts = engine.step_counts();
  const auto most = std::max_element(
      counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.steps < b.steps; });
  return most == counts.end() ? "" : std::string(name(most->mode));
}

std::vector<std::vector<int32_t>> random_prompts(int64_t count, int64_t length, int64_t vocab_size,
                                                 uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int32_t>> prompts(count);
  for (auto& prompt : prompts) {
    for (int64_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
    }
  }
  return prompts;
}

StepCost step_cost(const ir::Graph& graph, const ir::Sizes& sizes) {
  StepCost total;
  std::set<ir::ValueId> weights;
  for (const ir::Node& node : graph.nodes()) {
    const ir::Cost cost = ir::cost(graph, node, sizes);
    total.bytes += cost.bytes;
    total.flops += cost.flops;
    if (node.op->name == "embedding") continue;  // reads a few rows of it
    for (const ir::ValueId input : node.inputs) {
      const ir::Value& value = graph.value(input);
      if (value.kind == ir::ValueKind::kWeight && weights.insert(input).second) {
        total.weight_bytes += value.type.num_bytes(sizes);
      }
    }
  }
  return total;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_seconds() {
  timespec time{};
  ENCORE_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
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

json::value optional_json(const std::optional<double>& number) {
  return number ? json::value(*number) : json::value(nullptr);
}

std::string optional_text(const std::optional<double>& number, int decimals) {
  return number ? fmt::format("{:.{}f}", *number, decimals) : "-";
}

json::object bench_json(std::string_view verb, const BenchOptions& options, Bench& bench) {
  engine::LoadedModel& model = *bench.model;
  return {{"verb", std::string("bench ").append(verb)},
          {"model", options.common.model.empty() ? "stories" : options.common.model},
          {"device", bench.device->info().name},
          {"dtype", name(model.dtype())},
          {"kv_dtype", name(model.kv_dtype())},
          {"batch", options.batch},
          {"context", options.context},
          {"read_bandwidth_gb_per_s", bench.read_bandwidth / 1e9},
          {"load_s", model.load_seconds()},
          {"memory", memory_json(model.memory_plan())},
          {"recordings", recordings_json(model.recording_stats())}};
}

std::string bench_title(std::string_view verb, const BenchOptions& options, Bench& bench) {
  const std::string bandwidth = bench.read_bandwidth > 0
                                    ? fmt::format("reads {:.1f} GB/s", bench.read_bandwidth / 1e9)
                                    : "read bandwidth not measured";
  return fmt::format("{}: {}, {}, batch {}, context {}\n{}, {}\n\n", verb,
                     options.common.model.empty() ? "stories" : options.common.model,
                     dtype_text(bench.model->dtype(), bench.model->kv_dtype()), options.batch,
                     options.context, bench.device->info().name, bandwidth);
}

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand(
      "bench",
      "How fast it is: decode, ladder, prefill, linear, attention, sampling, sleep, tokenize");
  bench->require_subcommand(1);
  add_bench_decode(*bench);
  add_bench_ladder(*bench);
  add_bench_prefill(*bench);
  add_bench_sleep(*bench);
  add_bench_linear(*bench);
  add_bench_attention(*bench);
  add_bench_sampling(*bench);
  add_bench_tokenize(*bench);
}

}  // namespace encore::cli
