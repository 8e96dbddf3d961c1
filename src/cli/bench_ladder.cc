// Implements `encore bench ladder`, which compares the time of every bucket of a ladder with its
// floor.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/rounding.h"
#include "base/statistics.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"
#include "measure/decoding.h"
#include "measure/ladder_times.h"
#include "measure/report_page.h"
#include "model/config.h"
#include "planning/floor.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr int64_t kLadderDefaultMaxBatchSize = 256;

constexpr const char* kBenchLadderFooter =
    R"(Every bucket of the decode ladder up to --max-batch-size, or of the token ladder up to --max-num-tokens, its recording
replayed back to back: the device's time a step, the median of RUNS samples of several replays (of long prompts of one),
taken of all buckets in turn. The KV is full of random numbers and the pages lie anywhere. In a decode step each sequence
has CONTEXT tokens before its new one; a prompt step reads one prompt of the bucket's size, or as few as the model's
longest sequence allows. The floor is the sum over the ops of the longer of bytes / what this device reads at best,
measured in the same run, and FLOPs / what it computes at best, on the CPU measured as well.
`step` is the change of time against the bucket before, `ratio` that of time over floor.

With --beside eager, steps are run launch by launch as well, without padding: one of the bucket's size, and the least one
that is launched at it, a size above the bucket before. `benefit` is how much longer they take than the replay, in the mean
over the sizes between the two; the last bucket where it is above 1 % is where a ladder may end (`encore tune --times`).

  encore bench ladder --model synthetic:llama-3.1-8b --context 1024
  encore bench ladder --model synthetic:llama-3.1-8b --step prompt --max-num-tokens 16384
  encore bench ladder --model synthetic:llama-3.1-8b --step prompt --beside eager --json > prompts.json)";

struct BenchLadderOptions {
  BenchOptions bench;
  std::string step = "decode";
  std::string beside = "floor";
  std::string html;

  [[nodiscard]] bool reads_prompts() const { return step == "prompt"; }
  [[nodiscard]] bool has_eager() const { return beside == "eager"; }
};

// Returns the number of replays in one sample: enough that the time of the events around them is
// negligible.
int replays_per_sample(const BenchLadderOptions& options, DeviceKind device, int64_t bucket) {
  constexpr int64_t kMost = 8;
  constexpr int64_t kPromptTokens = 4096;
  if (device == DeviceKind::kCpu) return 1;
  return static_cast<int>(
      options.reads_prompts() ? std::clamp<int64_t>(kPromptTokens / bucket, 1, kMost) : kMost);
}

constexpr measure::ByDevice kLadderRuns{.gpu = 7, .cpu = 3};

int num_runs(const BenchLadderOptions& options, DeviceKind device) {
  return options.bench.runs.value_or(static_cast<int>(kLadderRuns.on(device)));
}

// Holds the options that the ladder is timed with, and the length of the longest sequence.
struct Load {
  loader::LoadOptions options;
  int64_t longest = 0;
};

Load decode_load(const BenchLadderOptions& options) {
  const config::Settings& settings = options.bench.settings;
  Load load{setup::load_options(settings)};
  load.options.graphs = runtime::Graphs::kFullDecodeOnly;
  runtime::Limits& limits = load.options.limits;
  limits.max_batch_size = settings.max_batch_size.value_or(kLadderDefaultMaxBatchSize);
  limits.max_num_tokens = settings.max_num_tokens.value_or(limits.max_batch_size);
  // Each replay makes the sequences one token longer. So the longest sequence has room for its
  // context and twice the replays of a sample.
  load.longest =
      options.bench.context + 1 + 2 * int64_t{replays_per_sample(options, DeviceKind::kCuda, 1)};
  return load;
}

Load prompt_load(const BenchLadderOptions& options) {
  const config::Settings& settings = options.bench.settings;
  Load load{setup::load_options(settings)};
  load.options.graphs = runtime::Graphs::kFull;
  runtime::Limits& limits = load.options.limits;
  limits.max_num_tokens = settings.max_num_tokens.value_or(kDefaultMaxNumTokens);
  const int64_t most =
      settings.max_seq_len.value_or(model::longest_sequence(setup::open_source(settings).config));
  load.longest = std::min(limits.max_num_tokens, most);
  const int64_t prompts = div_up(limits.max_num_tokens, load.longest);
  limits.max_batch_size = std::max(prompts, settings.max_batch_size.value_or(1));
  if (settings.decode_ladder.empty())
    load.options.sequences = runtime::Ladder({limits.max_batch_size});
  if (!load.options.kv_tokens)
    load.options.kv_tokens = limits.max_num_tokens + prompts * load.options.page_size;
  return load;
}

// Returns a step of a bucket's size whose sequences have pages for `steps` such steps.
diagnose::TrialStep step_of(const BenchLadderOptions& options, const measure::FilledKv& kv,
                            int64_t bucket, int64_t steps) {
  if (options.reads_prompts()) return kv.prompts(bucket);
  // Each replay is the next step of the same sequences, so the context starts half the steps below
  // CONTEXT and is CONTEXT on average.
  return kv.step(bucket, std::max<int64_t>(1, options.bench.context - steps / 2), 0, steps);
}

// Times one sample: replays of a bucket's recording, after one step that copies the inputs. Units:
// microseconds per step.
double sample_bucket(Bench& bench, const BenchLadderOptions& options, measure::FilledKv& kv,
                     int64_t bucket) {
  runtime::Executor& executor = bench.model->executor();
  Stream& stream = executor.loaded().stream;
  const int replays = replays_per_sample(options, bench.device->kind(), bucket);
  const diagnose::TrialStep step = step_of(options, kv, bucket, 1 + replays);
  const runtime::Choice choice = kv.begin(step);
  const Recording* recording = executor.loaded().recordings.full(choice.key);
  if (choice.mode != runtime::Mode::kFull || recording == nullptr) {
    fail(ErrorKind::kUnsupported, "a step of size {} has no full recording: {}", bucket,
         name(choice.reason));
  }
  const auto began = bench.device->create_event();
  const auto ended = bench.device->create_event();
  executor.run(step.lengths());
  stream.record(*began);
  for (int i = 0; i < replays; ++i)
    stream.replay(*recording);
  stream.record(*ended);
  stream.synchronize();
  return ended->milliseconds_since(*began) * 1e3 / replays;
}

// Times one sample of steps of exactly `size`, which run launch by launch. Units: microseconds per
// step.
double sample_eager(Bench& bench, const BenchLadderOptions& options, measure::FilledKv& kv,
                    int64_t size) {
  runtime::Executor& executor = bench.model->executor();
  Stream& stream = executor.loaded().stream;
  const int steps = replays_per_sample(options, bench.device->kind(), size);
  diagnose::TrialStep step = step_of(options, kv, size, 1 + steps);
  const runtime::Graphs served = executor.coverage().graphs;
  executor.set_graphs(runtime::Graphs::kNone);
  ENCORE_CHECK(kv.begin(step).padding == 0);
  const auto began = bench.device->create_event();
  const auto ended = bench.device->create_event();
  executor.run(step.lengths());
  stream.record(*began);
  for (int i = 0; i < steps; ++i) {
    if (options.reads_prompts()) {
      executor.run(step.lengths());
      continue;
    }
    for (diagnose::TrialStep::Sequence& sequence : step.sequences)
      ++sequence.past;
    executor.run(step.lengths(), runtime::InputsFrom::kLastStep);
  }
  stream.record(*ended);
  stream.synchronize();
  executor.set_graphs(served);
  return ended->milliseconds_since(*began) * 1e3 / steps;
}

std::vector<planning::NodeFloor> bucket_floors(Bench& bench, const BenchLadderOptions& options,
                                               const measure::FilledKv& kv, int64_t bucket,
                                               const planning::Rates& best) {
  const diagnose::TrialStep step = step_of(options, kv, bucket, 1);
  planning::KvWork work;
  for (const diagnose::TrialStep::Sequence& sequence : step.sequences)
    work = work + planning::KvWork::of(sequence.past, sequence.count);
  const passes::Program& program = bench.model->executor().loaded().program;
  return planning::node_floors(program.graph, step.key(bench.model->limits()).sizes(), work, best);
}

// Returns for each bucket the smallest step that it serves. For prompts that is at least 2 tokens,
// because a step of one token is a decode step.
std::vector<int64_t> least_steps(const BenchLadderOptions& options,
                                 const std::vector<int64_t>& buckets) {
  std::vector<int64_t> least{std::min<int64_t>(options.reads_prompts() ? 2 : 1, buckets.front())};
  for (size_t i = 1; i < buckets.size(); ++i)
    least.push_back(buckets[i - 1] + 1);
  return least;
}

// Returns the ladder to time: the one that the options name, or the default ladder.
runtime::Ladder timed_ladder(const BenchLadderOptions& options, const loader::LoadOptions& load) {
  if (options.reads_prompts()) {
    return load.tokens.empty() ? runtime::Ladder::tokens(load.limits.max_num_tokens) : load.tokens;
  }
  return load.sequences.empty() ? runtime::Ladder::sequences(load.limits.max_batch_size)
                                : load.sequences;
}

// Adds the smallest step of each bucket to the ladder, so that starting prepares its exact size as
// well.
void add_least_steps(BenchLadderOptions& options, loader::LoadOptions& load,
                     const runtime::Ladder& ladder) {
  std::vector<int64_t> sizes = least_steps(options, ladder.sizes());
  sizes.insert(sizes.end(), ladder.sizes().begin(), ladder.sizes().end());
  (options.reads_prompts() ? load.tokens : load.sequences) = runtime::Ladder(std::move(sizes));
  (options.reads_prompts() ? options.bench.settings.token_ladder
                           : options.bench.settings.decode_ladder)
      .clear();
}

// Times all buckets in turn, once for each run. A change during the measurement, such as a clock
// that follows the power, then affects all buckets alike and does not look like a jump between two
// buckets.
std::vector<measure::BucketTime> time_buckets(Bench& bench, const BenchLadderOptions& options,
                                              measure::FilledKv& kv, const planning::Rates& best,
                                              const std::vector<int64_t>& sizes) {
  struct Samples {
    std::vector<double> replayed, eager, least_eager;
  };
  const std::vector<int64_t> least = least_steps(options, sizes);
  std::vector<Samples> samples(sizes.size());
  for (int run = 0; run < num_runs(options, bench.device->kind()); ++run) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      samples[i].replayed.push_back(sample_bucket(bench, options, kv, sizes[i]));
      if (!options.has_eager()) continue;
      samples[i].eager.push_back(sample_eager(bench, options, kv, sizes[i]));
      samples[i].least_eager.push_back(least[i] == sizes[i]
                                           ? samples[i].eager.back()
                                           : sample_eager(bench, options, kv, least[i]));
    }
  }
  std::vector<measure::BucketTime> times;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<planning::NodeFloor> floors =
        bucket_floors(bench, options, kv, sizes[i], best);
    times.push_back({sizes[i],
                     median(samples[i].replayed),
                     planning::floor_us(floors),
                     planning::total_bytes(floors),
                     {}});
    if (options.has_eager()) {
      times.back().eager =
          measure::EagerTimes{least[i], median(samples[i].least_eager), median(samples[i].eager)};
    }
  }
  return times;
}

std::string ladder_name(const BenchLadderOptions& options) {
  return options.reads_prompts() ? "token ladder" : "decode ladder";
}

// Returns a text that names the model, the context and the device.
std::string timed_text(const BenchLadderOptions& options, const Bench& bench) {
  return fmt::format("{}, {}, on {}", model_text(options.bench.settings),
                     options.reads_prompts()
                         ? "prompts from their first token on"
                         : fmt::format("{} tokens of context", options.bench.context),
                     bench.device->info().name);
}

json::object ladder_json(const BenchLadderOptions& options, Bench& bench,
                         const runtime::Limits& limits, const planning::Rates& best,
                         const std::vector<measure::BucketTime>& times) {
  json::object out = bench_json("ladder", options.bench, bench);
  out.erase("batch");
  if (options.reads_prompts()) out.erase("context");
  out["step"] = options.step;
  out["ladder"] = ladder_name(options);
  out["counts"] = options.reads_prompts() ? "tokens" : "sequences";
  out["max_batch_size"] = limits.max_batch_size;
  out["max_num_tokens"] = limits.max_num_tokens;
  out["floor"] = planning::rates_text(best);
  out["floor_gb_per_s"] = best.bytes_per_s / 1e9;
  out["floor_tflop_per_s"] = best.flops_per_s / 1e12;
  out["buckets"] = measure::times_json(times);
  if (options.has_eager()) {
    const auto last = measure::pays_up_to(times);
    out["pays_up_to"] = last ? json::value(*last) : json::value(nullptr);
  }
  return out;
}

void bench_ladder(BenchLadderOptions options) {
  Load load = options.reads_prompts() ? prompt_load(options) : decode_load(options);
  setup::set_ladders(options.bench.settings, load.options);
  options.bench.batch = load.options.limits.max_batch_size;
  const runtime::Ladder ladder = timed_ladder(options, load.options);
  if (options.has_eager()) add_least_steps(options, load.options, ladder);
  Bench bench = open_bench(options.bench, load.options, load.longest);
  measure::FilledKv kv(*bench.model);
  const int64_t largest = ladder.sizes().back();
  const planning::Rates best =
      planning::rates(*bench.device, bench.read_bandwidth,
                      planning::total_bytes(bucket_floors(bench, options, kv, largest, {})));
  const std::vector<measure::BucketTime> times =
      time_buckets(bench, options, kv, best, ladder.sizes());
  const std::string what = timed_text(options, bench);
  const json::object report = ladder_json(options, bench, load.options.limits, best, times);
  if (!options.html.empty())
    write_file(options.html, measure::report_page("bench ladder", what, report));
  if (options.bench.json) return print(json::to_text(report) + "\n");
  print(fmt::format("{}: {}\nfloor: {}\n\n{}\n  {}\n", ladder_name(options), what,
                    planning::rates_text(best), measure::times_text(times), summary_text(times)));
}

}  // namespace

void add_bench_ladder(Command& bench) {
  Command* verb = bench.add_subcommand("ladder", "Every bucket of a ladder beside its floor");
  auto options =
      std::make_shared<BenchLadderOptions>();  // shared by the parser's options and the callback
  add_bench_model_options(*verb, options->bench);
  add_runs_option(*verb, options->bench, kLadderRuns);
  verb->add_option(
          "--step", options->step,
          "decode: the decode ladder; prompt: the token ladder, by steps that read prompts")
      ->one_of({"decode", "prompt"})
      ->capture_default_str();
  verb->add_option("--beside", options->beside,
                   "floor: the least that a step can take; eager: also steps launch by launch, to "
                   "see where replays pay")
      ->one_of({"floor", "eager"})
      ->capture_default_str();
  verb->add_option("--html", options->html,
                   "Also write a page that plots them: one file, nothing loaded")
      ->type_name("FILE");
  verb->group("Measurement: what is timed, and how often", {"--runs"});
  verb->group("Output: how results are printed", {"--json"});
  verb->footer(kBenchLadderFooter);
  verb->callback([options] { bench_ladder(*options); });
}

}  // namespace encore::cli
