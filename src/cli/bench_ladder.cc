// encore bench ladder: every bucket of the decode ladder, beside the least it can take.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/statistics.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"
#include "measure/decoding.h"
#include "measure/floor.h"
#include "measure/ladder_times.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr int64_t kDefaultMaxBatchSize = 256;

constexpr const char* kFooter =
    R"(Every bucket of the decode ladder up to --max-batch-size, its recording replayed back to back: the device's time a
step, the median of RUNS samples of several replays, taken of all buckets in turn. The KV is full of random numbers, the
pages lie anywhere, and each sequence has CONTEXT tokens before its new one. The floor is the sum over the ops of the
longer of bytes / what this device reads at best, measured in the same run, and FLOPs / what it computes at best, on the
CPU measured as well.
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
  const config::Settings& settings = options.bench.settings;
  engine::LoadOptions load = setup::load_options(settings);
  load.graphs = runtime::Graphs::kFullDecodeOnly;
  load.limits.max_batch_size = settings.max_batch_size.value_or(kDefaultMaxBatchSize);
  load.limits.max_num_tokens = settings.max_num_tokens.value_or(load.limits.max_batch_size);
  return load;
}

// One sample: of the steps after the one that copies the inputs. Units: microseconds a step.
double sample_bucket(Bench& bench, measure::FilledKv& kv, int64_t context, int64_t bucket) {
  runtime::Executor& executor = bench.model->executor();
  const int replays = replays_per_sample(bench.device->kind());
  // Each replay is the next step of the same sequences: their mean context is `context`.
  const int64_t steps = 1 + replays;
  const int64_t first = std::max<int64_t>(1, context - steps / 2);
  const diagnose::TrialStep step = kv.step(bucket, first, 0, steps);
  const runtime::Choice choice = kv.begin(step);
  const Recording* recording = executor.loaded().recordings.full(StepKey::uniform(bucket));
  if (choice.mode != runtime::Mode::kFull || recording == nullptr) {
    fail(ErrorKind::kUnsupported, "{} sequences have no full recording: {}", bucket,
         name(choice.reason));
  }
  const auto began = bench.device->create_event();
  const auto ended = bench.device->create_event();
  executor.run(step.lengths());
  executor.stream().record(*began);
  for (int i = 0; i < replays; ++i)
    executor.stream().replay(*recording);
  executor.stream().record(*ended);
  executor.synchronize();
  return ended->milliseconds_since(*began) * 1e3 / replays;
}

std::vector<measure::NodeFloor> bucket_floors(Bench& bench, const Options& options, int64_t bucket,
                                              const measure::Rates& best) {
  return measure::node_floors(bench.model->executor().loaded().program.graph, {bucket, bucket},
                              measure::KvWork::decode(bucket * (options.bench.context + 1)), best);
}

// All buckets in turn, once for each run: what changes meanwhile, such as a clock that follows the
// power, then shows in all of them alike, and not as a step from one to the next.
std::vector<measure::BucketTime> time_buckets(Bench& bench, const Options& options,
                                              const measure::Rates& best) {
  measure::FilledKv kv(*bench.model);
  const std::vector<int64_t>& buckets = bench.model->executor().coverage().sequences.sizes();
  const int64_t context = options.bench.context;
  std::vector<std::vector<double>> samples(buckets.size());
  for (int run = 0; run < num_runs(options, bench.device->kind()); ++run) {
    for (size_t i = 0; i < buckets.size(); ++i)
      samples[i].push_back(sample_bucket(bench, kv, context, buckets[i]));
  }
  std::vector<measure::BucketTime> times;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const std::vector<measure::NodeFloor> floors = bucket_floors(bench, options, buckets[i], best);
    times.push_back(
        {buckets[i], median(samples[i]), measure::floor_us(floors), measure::total_bytes(floors)});
  }
  return times;
}

void bench_ladder(Options options) {
  const engine::LoadOptions load = ladder_load_options(options);
  options.bench.batch = load.limits.max_batch_size;
  // Replays advance the sequences: those of a sample, and a page to spare.
  const int64_t longest =
      options.bench.context + 1 + 2 * int64_t{replays_per_sample(DeviceKind::kCuda)};
  Bench bench = open_bench(options.bench, load, longest);
  const int64_t largest = bench.model->executor().coverage().sequences.sizes().back();
  const measure::Rates best =
      measure::rates(*bench.device, bench.read_bandwidth,
                     measure::total_bytes(bucket_floors(bench, options, largest, {})));
  const std::vector<measure::BucketTime> times = time_buckets(bench, options, best);
  const std::string floor = measure::rates_text(best);
  const std::string what =
      fmt::format("{}, {} tokens of context, on {}", model_text(options.bench.settings),
                  options.bench.context, bench.device->info().name);
  if (!options.html.empty()) write_file(options.html, measure::ladder_html(times, what, floor));
  if (options.bench.json) {
    json::object out = bench_json("ladder", options.bench, bench);
    out.erase("batch");
    out["max_batch_size"] = load.limits.max_batch_size;
    out["floor"] = floor;
    out["floor_gb_per_s"] = best.bytes_per_s / 1e9;
    out["floor_tflop_per_s"] = best.flops_per_s / 1e12;
    out["buckets"] = measure::times_json(times);
    return print(json::to_text(out) + "\n");
  }
  print(fmt::format("ladder: {}\nfloor: {}\n\n{}\n  {}\n", what, floor, measure::times_text(times),
                    summary_text(times)));
}

}  // namespace

void add_bench_ladder(Command& bench) {
  Command* verb =
      bench.add_subcommand("ladder", "Every bucket of the decode ladder beside its floor");
  auto options = std::make_shared<Options>();  // shared by the parser's options and the callback
  add_bench_model_options(*verb, options->bench);
  add_runs_option(*verb, options->bench);
  verb->add_option("--html", options->html,
                   "Also write a page that plots them: one file, nothing loaded")
      ->type_name("FILE");
  verb->footer(kFooter);
  verb->callback([options] { bench_ladder(*options); });
}

}  // namespace encore::cli
