// encore bench ladder: every bucket of the decode ladder, beside the least it can take.
#include "cli/bench_ladder.h"

#include <algorithm>
#include <cmath>

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

namespace encore::cli {
namespace {

constexpr int64_t kDefaultMaxBatchSize = 256;
constexpr size_t kPlotWidth = 40;

constexpr const char* kFooter =
    R"(Every bucket of the decode ladder up to --max-batch-size, its recording replayed back to back: the device's time a
step, the median of RUNS samples of several replays, taken of all buckets in turn. The KV is full of random numbers, the
pages lie anywhere, and each sequence has CONTEXT tokens before its new one. The floor is the sum over the ops of the
longer of bytes / what this device reads at best, measured in the same run, and FLOPs / what it computes at best, where
that is known.
`step` is the change of time against the bucket before, `ratio` that of time over floor.)";

struct Options {
  BenchOptions bench;
  std::string html;
};

// Replays of one sample: enough that the events around them do not count.
int replays_per_sample(DeviceKind device) {
  return device == DeviceKind::kCpu ? 1 : 8;
}

int num_runs(const Options& options, DeviceKind device) {
  return options.bench.runs.value_or(device == DeviceKind::kCpu ? 3 : 7);
}

engine::LoadOptions ladder_load_options(const Options& options) {
  CommonOptions common = options.bench.common;
  common.graphs = "full-decode-only";
  engine::LoadOptions load = load_options(common);
  load.limits.max_batch_size = common.max_batch_size.value_or(kDefaultMaxBatchSize);
  load.limits.max_num_tokens = common.max_num_tokens.value_or(load.limits.max_batch_size);
  return load;
}

// One sample: of the steps after the one that copies the inputs. Units: microseconds a step.
double sample_bucket(Bench& bench, FilledKv& kv, int64_t context, int64_t bucket) {
  runtime::Executor& executor = bench.model->executor();
  const int replays = replays_per_sample(bench.device->kind());
  // Each replay is the next step of the same sequences: their mean context is `context`.
  const int64_t steps = 1 + replays;
  const int64_t first = std::max<int64_t>(1, context - steps / 2);
  const runtime::Choice choice = kv.begin(bucket, first, steps);
  const Recording* recording = executor.recordings().full(bucket, 1);
  if (choice.mode != runtime::Mode::kFull || recording == nullptr) {
    fail(ErrorKind::kUnsupported, "{} sequences have no full recording: {}", bucket,
         name(choice.reason));
  }
  const auto began = bench.device->create_event();
  const auto ended = bench.device->create_event();
  executor.launch({1, first + 1});
  executor.stream().record(*began);
  for (int i = 0; i < replays; ++i)
    executor.stream().replay(*recording);
  executor.stream().record(*ended);
  executor.synchronize();
  return ended->milliseconds_since(*began) * 1e3 / replays;
}

// All buckets in turn, once for each run: what changes meanwhile, such as a clock that follows the
// power, then shows in all of them alike, and not as a step from one to the next.
std::vector<BucketTime> time_buckets(Bench& bench, const Options& options) {
  FilledKv kv(*bench.model);
  const std::vector<int64_t>& buckets = bench.model->executor().coverage().sequences.sizes();
  const int64_t context = options.bench.context;
  std::vector<std::vector<double>> samples(buckets.size());
  for (int run = 0; run < num_runs(options, bench.device->kind()); ++run) {
    for (size_t i = 0; i < buckets.size(); ++i)
      samples[i].push_back(sample_bucket(bench, kv, context, buckets[i]));
  }
  const auto& graph = bench.model->executor().program().graph;
  const Rates best = rates(bench.device->kind(), bench.read_bandwidth);
  std::vector<BucketTime> times;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const ir::Sizes sizes{buckets[i], buckets[i]};
    times.push_back({buckets[i], median(samples[i]),
                     floor_us(node_floors(graph, sizes, buckets[i] * (context + 1), best))});
  }
  return times;
}

// As long as the time, the floor's part of it darker.
std::string bar(const BucketTime& time, double longest_us) {
  const auto length = [&](double us) {
    return static_cast<size_t>(std::lround(us / longest_us * kPlotWidth));
  };
  const size_t floor = std::min(length(time.floor_us), length(time.us));
  return std::string(floor, '#') + std::string(length(time.us) - floor, '+');
}

std::string ladder_table(const std::vector<BucketTime>& times) {
  double longest = 0;
  for (const BucketTime& time : times)
    longest = std::max(longest, time.us);
  Table table({"bucket", "us", "floor us", "over floor", "step", "ratio", "# floor, + above it"});
  for (size_t i = 0; i < times.size(); ++i) {
    const BucketTime& now = times[i];
    const auto against = [&](double before, double after) {
      return i == 0 ? std::string("-") : fmt::format("{:+.1f} %", change(before, after) * 100);
    };
    const BucketTime& before = times[i == 0 ? 0 : i - 1];
    table.add({std::to_string(now.bucket), fmt::format("{:.1f}", now.us),
               fmt::format("{:.1f}", now.floor_us), fmt::format("{:.3f}", now.ratio()),
               against(before.us, now.us), against(before.ratio(), now.ratio()),
               bar(now, longest)});
  }
  return table.text();
}

json::array buckets_json(const std::vector<BucketTime>& times) {
  json::array rows;
  for (size_t i = 0; i < times.size(); ++i) {
    const BucketTime& before = times[i == 0 ? 0 : i - 1];
    const auto against = [&](double from, double to) {
      return i == 0 ? json::value(nullptr) : json::value(change(from, to));
    };
    rows.push_back(json::object{{"bucket", times[i].bucket},
                                {"us", times[i].us},
                                {"floor_us", times[i].floor_us},
                                {"over_floor", times[i].ratio()},
                                {"change_of_time", against(before.us, times[i].us)},
                                {"change_of_ratio", against(before.ratio(), times[i].ratio())}});
  }
  return rows;
}

std::string summary_text(const std::vector<BucketTime>& times) {
  const LadderSummary summary = summarize(times);
  std::string text = fmt::format("farthest above its floor: {} at {:.3f}",
                                 times[summary.worst].bucket, times[summary.worst].ratio());
  if (summary.largest_change > 0) {
    text += fmt::format("; time over floor changes most from {} to {}: {:+.1f} %",
                        times[summary.largest_change - 1].bucket,
                        times[summary.largest_change].bucket, summary.change * 100);
  }
  return text;
}

void bench_ladder(Options options) {
  const engine::LoadOptions load = ladder_load_options(options);
  options.bench.batch = load.limits.max_batch_size;
  // Replays advance the sequences: those of a sample, and a page to spare.
  const int64_t longest =
      options.bench.context + 1 + 2 * int64_t{replays_per_sample(DeviceKind::kCuda)};
  Bench bench = open_bench(options.bench, load, longest);
  const std::vector<BucketTime> times = time_buckets(bench, options);
  const std::string floor = rates_text(rates(bench.device->kind(), bench.read_bandwidth));
  const std::string what =
      fmt::format("{}, {} tokens of context, on {}",
                  options.bench.common.model.empty() ? "stories" : options.bench.common.model,
                  options.bench.context, bench.device->info().name);
  if (!options.html.empty()) write_file(options.html, ladder_html(times, what, floor));
  if (options.bench.json) {
    json::object out = bench_json("ladder", options.bench, bench);
    out.erase("batch");
    out["max_batch_size"] = load.limits.max_batch_size;
    out["floor"] = floor;
    out["buckets"] = buckets_json(times);
    return print(to_text(out) + "\n");
  }
  print(fmt::format("ladder: {}\nfloor: {}\n\n{}\n  {}\n", what, floor, ladder_table(times),
                    summary_text(times)));
}

}  // namespace

LadderSummary summarize(const std::vector<BucketTime>& times) {
  LadderSummary summary;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].ratio() > times[summary.worst].ratio()) summary.worst = i;
    if (i == 0) continue;
    const double changed = change(times[i - 1].ratio(), times[i].ratio());
    if (summary.largest_change != 0 && std::abs(changed) <= std::abs(summary.change)) continue;
    summary.largest_change = i;
    summary.change = changed;
  }
  return summary;
}

void add_bench_ladder(CLI::App& bench) {
  CLI::App* verb =
      bench.add_subcommand("ladder", "Every bucket of the decode ladder beside its floor");
  auto options = std::make_shared<Options>();  // shared by the parser's options and the callback
  add_bench_model_options(*verb, options->bench);
  add_runs_option(*verb, options->bench);
  verb->add_option("--html", options->html,
                   "Also write a page that plots them: one file, nothing loaded")
      ->type_name("FILE");
  verb->footer(kFooter);
  verb->callback([options, verb] {
    apply_config(*verb, options->bench.common.config);
    bench_ladder(*options);
  });
}

}  // namespace encore::cli
