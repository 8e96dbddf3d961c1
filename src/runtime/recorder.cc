#include "runtime/recorder.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "backend/tuning.h"
#include "base/elapsed.h"
#include "base/log.h"

namespace encore::runtime {
namespace {

constexpr double kWorthALine = 1;  // Units: seconds

// Names the code that a launch runs, so that launches of other layers and sizes with the same code
// are recognized. The kernel's name is not enough, because one kernel of the table may stand for
// many functions of cuBLASLt.
std::string signature(const Launch& launch) {
  std::string text(launch.kernel->name);
  for (const auto* views : {&launch.args.inputs, &launch.args.outputs}) {
    for (const TensorView& view : *views)
      text += fmt::format(" {}[{}]", name(view.dtype), fmt::join(view.shape, ","));
  }
  return text;
}

// Runs the start-up of one executor. Lifetime: refers to the parts and the options.
class Recorder {
 public:
  Recorder(const UnrecordedParts& parts, const ExecutorOptions& options)
      : loaded_(parts.loaded),
        token_state_(parts.token_state),
        coverage_(parts.coverage),
        on_demand_(parts.on_demand),
        options_(options),
        uniform_(uniform_shapes(coverage_.sequences, options.limits)),
        mixed_(mixed_shapes(coverage_.mixed_ladder(), coverage_.tokens, options.limits.num_drafts)),
        above_(above_shapes(coverage_.sequences, coverage_.tokens, options.limits)) {}

  void record() {
    const auto used_bytes = [&] { return loaded_.device.used_bytes().value_or(0); };
    RecordingStats& stats = loaded_.recordings.stats();
    loaded_.set_workspace(all_steps());
    const int64_t at_start = used_bytes();
    stats.lower_ms = elapsed_ms([&] { lower(); });
    stats.segments = loaded_.tables.num_segments();
    stats.sizes = static_cast<int>(uniform_.size() + mixed_.size());
    stats.tables = loaded_.tables.num_tables();
    plan_recordings();
    reach(StartPoint::kLowered);
    const bool sets_up_late = loaded_.device.sets_up_late();
    if (sets_up_late) stats.warm_up_ms = elapsed_ms([&] { warm_up(); });
    const int64_t warm = used_bytes();
    stats.library_bytes = warm - at_start;
    reach(StartPoint::kWarm);
    if (on_demand_ != nullptr && coverage_.uniform_full) {
      record_for_demand();
    } else {
      record_steps(uniform_, coverage_.uniform_full, coverage_.uniform_pieces);
    }
    record_steps(mixed_, coverage_.mixed_full, coverage_.mixed_pieces);
    reach(StartPoint::kRecorded);
    if (sets_up_late) {
      // Run the largest steps in the mode in which they are replayed.
      run_on_padding(uniform_.front());
      run_on_padding(mixed_.front());
    }
    stats.bytes = used_bytes() - warm;
  }

 private:
  void reach(StartPoint point) const {
    if (options_.reached) options_.reached(point, loaded_);
  }

  // Returns all steps whose launches may need scratch and counters.
  [[nodiscard]] std::vector<StepKey> all_steps() const {
    std::vector<StepKey> steps;
    for (const auto* some : {&uniform_, &mixed_, &above_})
      steps.insert(steps.end(), some->begin(), some->end());
    // Uniform steps above the ladder, and all uniform steps where padding is off, run at their
    // exact size, so each such size is added.
    const Limits& limits = options_.limits;
    for (const int64_t drafts : std::set{int64_t{0}, limits.num_drafts})
      steps.push_back(StepKey::mixed(limits.max_num_tokens, limits.max_batch_size, drafts));
    const int64_t first = coverage_.pad_uniform ? coverage_.sequences.sizes().back() + 1 : 1;
    for (int64_t size = first; size <= limits.max_batch_size; ++size) {
      for (const int64_t q : limits.uniform_qs(size))
        steps.push_back(StepKey::uniform(size, q));
    }
    return steps;
  }

  void lower() {
    const Tuner::Phase tuning(loaded_.device.tuner());
    log::Progress progress("choosing kernels for",
                           static_cast<double>(uniform_.size() + mixed_.size() + above_.size()),
                           "sizes", kWorthALine);
    int done = 0;
    for (const auto* steps : {&uniform_, &mixed_, &above_}) {
      for (const StepKey& step : *steps) {
        lower_size(step);
        progress.update(++done);
      }
    }
  }

  void lower_size(const StepKey& step) {
    const TuningStats before = loaded_.device.tuner().stats();
    const int tables_before = loaded_.tables.num_tables();
    const double ms = elapsed_ms([&] { loaded_.tables.lower_all(step); });
    const TuningStats after = loaded_.device.tuner().stats();
    const int tables = loaded_.tables.num_tables() - tables_before;
    if (tables == 0) return;  // tables of other sizes serve this one
    log::debug("compiled {}: {} tables, {} kernels measured, {} from the tuning cache, {:.1f} ms",
               describe(step), tables, after.measured - before.measured,
               after.cached - before.cached, ms);
  }

  // Launches each kernel once for each shape of its operands, on padding rows only. A device may
  // set something up at a first launch, such as loading the code of cuBLASLt's kernels, and that
  // must not happen in a recording.
  void warm_up() {
    token_state_.warm_up(loaded_.stream);
    for (const auto* steps : {&uniform_, &mixed_, &above_}) {
      if (steps->empty()) continue;
      warm_up(*steps);
    }
    reach(StartPoint::kLoaded);
    for (const auto* steps : {&uniform_, &mixed_, &above_}) {
      if (steps->empty()) continue;
      // Run the largest step, so that the device sets nothing up later.
      loaded_.send_padding(steps->front());
      loaded_.enqueue({steps->front(), {}}, Mode::kEager);
      loaded_.stream.synchronize();
    }
  }

  // Returns whether some launches read lengths that other launches of the step compute, as those of
  // a draft model do. Such launches are warmed up in whole steps, because a launch by itself would
  // read arbitrary lengths.
  [[nodiscard]] bool makes_lengths() const {
    return std::ranges::any_of(loaded_.program.graph.values(), [](const ir::Value& value) {
      return value.type.rows() == ir::Symbol::kGuessing;
    });
  }

  void warm_up(const std::vector<StepKey>& steps) {
    const bool runs_whole = makes_lengths();
    // Go from the smallest size to the largest: a launch that is the same at many sizes is warmed
    // up where it takes the least time.
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      bool is_begun = false;
      for (int segment = 0; segment < loaded_.tables.num_segments(); ++segment) {
        for (const Launch& launch : loaded_.tables.at(segment, *step)) {
          // A collective runs in whole steps only, together with its peers on other ranks. Its code
          // is loaded when it is bound.
          if (loaded_.program.graph.nodes()[launch.node].op->is_collective) continue;
          if (!warm_.insert(signature(launch)).second) continue;
          if (!is_begun) loaded_.send_padding(*step);
          if (!is_begun && runs_whole) loaded_.enqueue({*step, {}}, Mode::kEager);
          is_begun = true;
          if (runs_whole) continue;
          loaded_.stream.launch({launch.kernel->op, launch.id, std::nullopt}, launch.bound, {});
        }
      }
    }
    loaded_.stream.synchronize();
  }

  // Decides what to record, once all steps are lowered. Errors: kUsage.
  void plan_recordings() {
    const auto all = [&](const std::vector<StepKey>& steps) {
      return std::ranges::all_of(
          steps, [&](const StepKey& step) { return loaded_.tables.recordable(step); });
    };
    const Recordable recordable{all(uniform_), all(mixed_)};
    runtime::plan_recordings(coverage_, recordable);
    if (options_.record_all_modes) {
      coverage_.uniform_full = recordable.uniform;
      coverage_.mixed_full = recordable.mixed;
      coverage_.uniform_pieces = true;
      coverage_.mixed_pieces = true;
    }
    if (on_demand_ != nullptr && coverage_.uniform_pieces) {
      fail(
          ErrorKind::kUsage,
          "--decode-ladder lru:{} records whole decode steps when they come, and not their pieces: "
          "take a list or another schedule",
          on_demand_->capacity());
    }
  }

  // Records as many of the smallest steps as an lru ladder will ever hold, so that recordings take
  // their memory before the KV pool does.
  void record_for_demand() {
    const auto count = std::min<int64_t>(on_demand_->capacity(), std::ssize(uniform_));
    for (auto step = uniform_.end() - count; step != uniform_.end(); ++step)
      on_demand_->require(*step, options_.recording_errors, coverage_);
  }

  void record_steps(std::vector<StepKey> steps, bool full, bool pieces) {
    Recordings& recordings = loaded_.recordings;
    const RecordingErrors policy = options_.recording_errors;
    const bool has_halves =
        options_.halves && loaded_.program.first_awaiting_host() < loaded_.tables.num_segments();
    if (options_.record_order == RecordOrder::kAscending) std::reverse(steps.begin(), steps.end());
    log::Progress progress("recording", static_cast<double>(steps.size()), "sizes", kWorthALine);
    int done = 0;
    for (const StepKey& step : steps) {
      progress.update(done++);
      const RecordingStats before = recordings.stats();
      if (full) {
        if (!record_or_drop(policy, [&] { recordings.record_full(step); }))
          coverage_.dropped_full.insert(step);
        // Where the burst of a size could not be recorded, the recording of a single step of that
        // size is kept.
        if (options_.bursts && step.is_uniform())
          record_or_drop(policy, [&] { recordings.record_burst(step); });
        if (has_halves && !record_or_drop(policy, [&] { recordings.require_halves(step); }))
          coverage_.dropped_halves.insert(step);
      }
      for (int segment = 0; pieces && segment < loaded_.tables.num_segments(); ++segment) {
        const auto& [first, last, in_pieces, rows] = loaded_.program.segments[segment];
        if (!in_pieces || recordings.piece(segment, step) != nullptr) continue;
        if (loaded_.tables.at(segment, step).empty()) continue;  // only steps with drafts have it
        if (record_or_drop(policy, [&] { recordings.record_piece(segment, step); })) continue;
        if (rows == ir::Symbol::kTokens) coverage_.dropped_tokens.insert(step.tokens);
        if (rows == ir::Symbol::kSequences) coverage_.dropped_tails.insert(step.sequences);
      }
      const RecordingStats& after = recordings.stats();
      const int num_full = after.num_full() - before.num_full();
      const int num_pieces = after.pieces.recordings - before.pieces.recordings;
      if (num_full + num_pieces == 0) continue;
      log::debug("recorded {}: {} in full, {} pieces, {:.1f} ms", describe(step), num_full,
                 num_pieces, after.ms() - before.ms());
    }
  }

  // Replays a step on padding rows. Does nothing where the step would run eager.
  void run_on_padding(const StepKey& step) {
    const auto [mode, key, padding, reason, rule] = choose(step, coverage_);
    if (mode == Mode::kEager) return;
    if (on_demand_ != nullptr && mode == Mode::kFull && key.is_uniform())
      on_demand_->require(key, RecordingErrors::kDrop, coverage_);
    loaded_.send_padding(key);
    loaded_.enqueue({key, {}}, mode);
    // A device may set something up when it first runs a loop. This loop ends at once, because no
    // row goes on.
    const Recording* burst = loaded_.recordings.burst(key);
    if (burst != nullptr) loaded_.replay(*burst);
    loaded_.stream.synchronize();
  }

  LoadedProgram& loaded_;
  TokenState& token_state_;
  Coverage& coverage_;
  OnDemandRecordings* on_demand_;
  const ExecutorOptions& options_;
  // The step shapes of the ladders, and examples of the steps above the ladders; the largest first.
  std::vector<StepKey> uniform_;
  std::vector<StepKey> mixed_;
  std::vector<StepKey> above_;
  std::set<std::string> warm_;  // signatures of the launches that were warmed up
};

}  // namespace

void record(const UnrecordedParts& parts, const ExecutorOptions& options) {
  Recorder(parts, options).record();
}

}  // namespace encore::runtime
