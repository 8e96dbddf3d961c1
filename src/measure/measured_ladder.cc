#include "measure/measured_ladder.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/rounding.h"
#include "base/statistics.h"
#include "diagnose/trial_step.h"
#include "measure/timing.h"
#include "model/graph.h"
#include "planning/cost_model.h"

namespace encore::measure {
namespace {

constexpr int kTimedSteps = 9;
constexpr int64_t kTokensOfASequence = 256;
constexpr uint64_t kSeed = 7;
constexpr size_t kLongestError = 1000;

double step_ms(loader::LoadedModel& model, const diagnose::TrialStep& step) {
  std::vector<double> times;
  for (int i = 0; i < kTimedSteps; ++i) {
    const double start = now_seconds();
    diagnose::begin(model, step, kSeed);
    model.executor().run(step.lengths());
    model.executor().loaded().stream.synchronize();
    times.push_back((now_seconds() - start) * 1e3);
  }
  return median(times);
}

const runtime::RecordingStats& stats_now(loader::LoadedModel& model) {
  return model.executor().loaded().recordings.stats();
}

// Returns the number of sequences in a mixed step of `tokens` tokens: the fewest prompts that hold
// the tokens, and one fewer sequences that decode.
int64_t mixed_sequences(const runtime::Limits& limits, int64_t tokens) {
  return 2 * div_up(tokens, limits.max_seq_len) - 1;
}

StepKey step_of(const runtime::Limits& limits, LadderOf of, int64_t size) {
  if (of == LadderOf::kSequences) return StepKey::uniform(size);
  return StepKey::mixed(size, mixed_sequences(limits, size));
}

loader::LoadOptions strategy_options(const loader::LoadOptions& base, const Strategy& strategy,
                                     int64_t longest) {
  loader::LoadOptions load = base;
  runtime::Limits& limits = load.limits;
  load.record_order = strategy.order;
  if (strategy.of == LadderOf::kSequences) {
    load.graphs = runtime::Graphs::kFullDecodeOnly;
    load.sequences = strategy.ladder;
    load.tokens = runtime::Ladder({limits.max_num_tokens});
    limits.max_seq_len = std::min(longest, std::max(kTokensOfASequence, limits.max_seq_len));
    load.kv_tokens = limits.max_batch_size * kTokensOfASequence;
  } else {
    const bool is_whole = strategy.of == LadderOf::kTokens;
    load.graphs = is_whole ? runtime::Graphs::kFull : runtime::Graphs::kPiecewise;
    load.tokens = strategy.ladder;
    limits.max_seq_len = std::min(longest, std::max(limits.max_num_tokens, limits.max_seq_len));
    const int64_t sequences = mixed_sequences(limits, limits.max_num_tokens);
    limits.max_batch_size = std::max(limits.max_batch_size, sequences);
    // Full recordings of steps with prompts require recordings of decode steps too, so one decode
    // size is recorded.
    load.sequences = is_whole ? runtime::Ladder({limits.max_batch_size})
                              : runtime::Ladder({1, sequences, limits.max_batch_size});
    load.kv_tokens = sequences * (limits.max_seq_len + load.page_size);
  }
  if (!strategy.records) {
    // The ladder has only the sizes that are timed, because starting prepares every size of a
    // ladder.
    const bool of_tokens = counts_tokens(strategy.of);
    const int64_t max = of_tokens ? limits.max_num_tokens : limits.max_batch_size;
    load.graphs = runtime::Graphs::kNone;
    (of_tokens ? load.tokens : load.sequences) = runtime::Ladder(sample_sizes(strategy.of, max));
  }
  return load;
}

// Runs the step of every size of the ladder `replays` times.
void replay_all(loader::LoadedModel& model, const Strategy& strategy, int64_t replays) {
  for (const int64_t size : strategy.ladder.sizes()) {
    const auto step = diagnose::trial_step(model, step_of(model.limits(), strategy.of, size));
    if (!step) continue;
    diagnose::begin(model, *step, kSeed);
    for (int64_t i = 0; i < replays; ++i)
      model.executor().run(step->lengths());  // each run copies the same inputs again
    model.executor().loaded().stream.synchronize();
  }
}

// Adds up the counts and times of all recordings made at start.
runtime::RecordingStats::Part all_parts(const runtime::RecordingStats& stats) {
  runtime::RecordingStats::Part all;
  for (const auto* part : {&stats.full, &stats.mixed, &stats.pieces}) {
    all.recordings += part->recordings;
    all.executables += part->executables;
    all.nodes += part->nodes;
    all.capture_ms += part->capture_ms;
    all.instantiate_ms += part->instantiate_ms;
  }
  return all;
}

// Returns the cost that the cost model predicts for the ladder's recordings. For a ladder `lru:N`,
// that is the cost of N recordings.
planning::BucketCost predicted(loader::LoadedModel& model, const Strategy& strategy) {
  if (!strategy.records) return {};
  planning::RecordingEstimate estimate = planning::estimate_recordings(
      model.program(), model.executor().coverage(), model.executor().loaded().device.kernels());
  const int num_full = model.recording_stats().full.recordings;
  estimate.full.resize(std::min<size_t>(estimate.full.size(), num_full));
  return estimate.total();
}

Measured measure_here(const std::function<std::unique_ptr<Device>()>& open_device,
                      const model::ModelSource& source, const loader::LoadOptions& base,
                      const Strategy& strategy, int64_t replays) {
  const auto device = open_device();
  const loader::LoadOptions load =
      strategy_options(base, strategy, model::longest_sequence(source.config));
  loader::LoadedModel model(*device, source, load);
  const runtime::RecordingStats& stats = model.recording_stats();
  const bool of_tokens = counts_tokens(strategy.of);
  const runtime::RecordingStats::Part part = all_parts(stats);
  const planning::BucketCost cost = predicted(model, strategy);
  Measured measured{
      .recordings = part.recordings,
      .executables = part.executables,
      .nodes = part.nodes,
      .predicted_bytes = cost.bytes,
      .record_ms = part.ms(),
      .predicted_ms = cost.milliseconds(),
      .plan = loader::memory_plan(model),
      .kv_bytes_per_token = model::kv_bytes_per_token(model.config(), model.kv_dtype()),
      .used_bytes = device->used_bytes().value_or(0)};
  diagnose::fill_kv(model, kSeed);
  const runtime::Limits& limits = model.limits();
  const std::vector<int64_t> sizes =
      sample_sizes(strategy.of, of_tokens ? limits.max_num_tokens : limits.max_batch_size);
  std::vector<double> first_uses;
  for (const int64_t size : sizes) {
    const auto step = diagnose::trial_step(model, step_of(limits, strategy.of, size));
    if (!step) continue;
    const int before = stats_now(model).full.recordings;
    const double start = now_seconds();
    diagnose::begin(model, *step, kSeed);
    const double ms = (now_seconds() - start) * 1e3;
    if (stats_now(model).full.recordings > before) first_uses.push_back(ms);
    measured.mean_step_ms += step_ms(model, *step) / static_cast<double>(sizes.size());
  }
  if (!first_uses.empty()) measured.first_use_ms = median(first_uses);
  replay_all(model, strategy, replays);
  measured.used_bytes_after = device->used_bytes().value_or(0);
  return measured;
}

}  // namespace

std::vector<int64_t> sample_sizes(LadderOf of, int64_t max) {
  std::vector<int64_t> sizes;
  if (of == LadderOf::kSequences || max < 4) sizes.push_back(of == LadderOf::kSequences ? 1 : max);
  for (int64_t size = 3; size < max; size = 2 * size + 1)
    sizes.push_back(size);
  return sizes;
}

planning::Histogram every_size_once(int64_t max) {
  planning::Histogram histogram;
  for (int64_t size = 1; size <= max; ++size)
    histogram.push_back({size, 1});
  return histogram;
}

Measured measure(const std::function<std::unique_ptr<Device>()>& open_device,
                 const model::ModelSource& source, const loader::LoadOptions& base,
                 const Strategy& strategy, int64_t replays) {
  log::info("measuring {}", strategy.name);
  // The child process fills in this answer in shared memory.
  struct Answer {
    Measured measured;
    ErrorKind kind;
    char error[kLongestError];  // empty if there was no error
  };
  static_assert(std::is_trivially_copyable_v<Answer>);
  auto* answer = static_cast<Answer*>(
      mmap(nullptr, sizeof(Answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (answer == MAP_FAILED) fail(ErrorKind::kMemory, "no memory to measure in another process");
  const pid_t child = fork();
  if (child < 0) fail(ErrorKind::kMemory, "cannot start another process to measure in");
  if (child == 0) {
    try {
      answer->measured = measure_here(open_device, source, base, strategy, replays);
    } catch (const Error& error) {
      answer->kind = error.kind();
      std::string_view(error.what()).copy(answer->error, kLongestError - 1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const Answer received = *answer;
  munmap(answer, sizeof(Answer));
  if (received.error[0] != 0) fail(received.kind, "{}: {}", strategy.name, received.error);
  if (status != 0) fail(ErrorKind::kDevice, "{}: the process that measured it died", strategy.name);
  Measured measured = received.measured;
  const int64_t max =
      counts_tokens(strategy.of) ? base.limits.max_num_tokens : base.limits.max_batch_size;
  measured.waste = planning::price(every_size_once(max), strategy.ladder).waste();
  return measured;
}

}  // namespace encore::measure
