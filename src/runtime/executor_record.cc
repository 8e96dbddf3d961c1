// How an executor makes its recordings: tune, warm up, record, and run the worst step of each mode.
#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/ranges.h>

#include "backend/tuning.h"
#include "base/log.h"
#include "runtime/executor.h"
#include "runtime/shapes.h"
#include "runtime/timed.h"

namespace encore::runtime {
namespace {

constexpr double kWorthALine = 1;  // seconds

// What tells a launch from those of other layers and sizes that run the same code: one kernel of
// the table may stand for many functions of a library.
std::string signature(const Launch& launch) {
  std::string text(launch.kernel->name);
  for (const auto* views : {&launch.args.inputs, &launch.args.outputs}) {
    for (const TensorView& view : *views)
      text += fmt::format(" {}", fmt::join(view.shape, ","));
  }
  return text;
}

}  // namespace

const RecordingStats& Executor::record() {
  if (options_.graphs == Graphs::kNone && !options_.record_all_modes) return recordings_.stats();
  plan_recordings(coverage_, program_.full_recordable());
  if (options_.record_all_modes) {
    coverage_.full = program_.full_recordable();
    coverage_.uniform_pieces = true;
    coverage_.mixed_pieces = true;
  }

  const auto uniform = uniform_shapes(coverage_.sequences, options_.limits);
  const auto mixed = mixed_shapes(coverage_.mixed_ladder(), coverage_.tokens);
  RecordingStats& stats = recordings_.stats();
  stats.segments = tables_.num_segments();
  const int64_t at_start = device_.used_bytes().value_or(0);
  stats.lower_ms = timed([&] {
    const Tuner::Phase tuning(device_.tuner());
    log::Progress progress("choosing kernels for",
                           static_cast<double>(uniform.size() + mixed.size()), "sizes",
                           kWorthALine);
    int done = 0;
    for (const auto* shapes : {&uniform, &mixed}) {
      for (const StepShape& shape : *shapes) {
        tables_.lower_all(shape);
        if (shape.uniform() && coverage_.full) lower_whole(shape);
        progress.update(++done);
      }
    }
  });
  stats.warm_up_ms = timed([&] {
    warm_up(uniform);
    warm_up(mixed);
  });
  const int64_t warm = device_.used_bytes().value_or(0);
  memory_plan_.libraries = warm - at_start;
  if (const auto lru = coverage_.sequences.lru()) {
    // As many as there will ever be, so that their memory is taken before KV's: the smallest.
    const auto first = uniform.end() - std::min<int64_t>(*lru, std::ssize(uniform));
    record_shapes({first, uniform.end()}, coverage_.full, coverage_.uniform_pieces);
    for (auto shape = first; shape != uniform.end(); ++shape)
      recent_.emplace_front(shape->padded.sequences, shape->q);
  } else {
    record_shapes(uniform, coverage_.full, coverage_.uniform_pieces);
  }
  record_shapes(mixed, false, coverage_.mixed_pieces);
  // The worst step of each mode, so that nothing is set up later.
  run_on_padding(
      {uniform.front().padded.tokens, uniform.front().padded.sequences, uniform.front().q});
  run_on_padding({mixed.front().padded.tokens, mixed.front().padded.sequences, 0});
  recount();
  memory_plan_.recordings = device_.used_bytes().value_or(0) - warm;
  return stats;
}

void Executor::record_shapes(std::vector<StepShape> shapes, bool full, bool pieces) {
  if (options_.record_order == RecordOrder::kAscending) std::reverse(shapes.begin(), shapes.end());
  log::Progress progress("recording", static_cast<double>(shapes.size()), "sizes", kWorthALine);
  int done = 0;
  for (const StepShape& shape : shapes) {
    progress.update(done++);
    if (full) {
      record_or_drop([&] { recordings_.record_full(shape); },
                     [&] {
                       coverage_.dropped_full.insert({shape.padded.sequences, shape.q});
                     });
      // Without its burst a size still has single steps.
      if (options_.bursts && shape.q == 1)
        record_or_drop([&] { recordings_.record_burst(shape); }, [] {});
    }
    for (int segment = 0; pieces && segment < tables_.num_segments(); ++segment) {
      if (!recordings_.in_pieces(segment) || recordings_.piece(segment, shape) != nullptr) continue;
      record_or_drop([&] { recordings_.record_piece(segment, shape); },
                     [&] { drop_piece(segment, shape); });
    }
  }
}

void Executor::lower_whole(const StepShape& step) {
  if (options_.persistent == Persistent::kOff) return;
  bool use = false;
  record_or_drop(
      [&] {
        use = !tables_.merged(step).empty() &&
              (options_.persistent == Persistent::kOn || merged_is_faster(step));
      },
      [] {});
  tables_.use_merged(step, use);
  if (!use) tables_.drop_merged(step);
}

// As two configurations of one launch, a replay, so that the answer is remembered.
bool Executor::merged_is_faster(const StepShape& step) {
  const std::string launches = "launches";
  const std::string persistent = "persistent";
  const KernelArgs none;
  const auto bind = [&](const std::string& config, const KernelArgs&) -> BoundLaunch {
    tables_.use_merged(step, config == persistent);
    copy_padding(step);
    tables_.launch_whole(*stream_, step);  // nothing may be set up in a recording
    stream_->synchronize();
    RecordingScope scope(*stream_);
    tables_.launch_whole(*stream_, step);
    const std::shared_ptr<const Recording> recording = scope.finish();
    return [recording](Stream& stream, const StepShape&) { stream.replay(*recording); };
  };
  const Tunable tunable{
      .launch = fmt::format("step of {} tokens, {} sequences, {:016x}", step.padded.tokens,
                            step.padded.sequences, hash(print(program_, tables_.merged(step)))),
      .args = none,
      .workspace = {},
      .candidates =
          [&](int) {
            return std::vector<std::string>{launches, persistent};
          },
      .bind = bind};
  return device_.tuner().choose(tunable) == persistent;
}

void Executor::record_or_drop(const std::function<void()>& record,
                              const std::function<void()>& drop) {
  try {
    record();
  } catch (const Error& error) {
    if (options_.recording_errors == RecordingErrors::kStop)
      fail(error.kind(), "{}; {}", error.what(), recording_remedy(error.kind()));
    log::warning("{}; going on without this recording", error.what());
    drop();
  }
}

void Executor::drop_piece(int segment, const StepShape& step) {
  if (program_.segments[segment].rows == ir::Symbol::kTokens) {
    coverage_.dropped_tokens.insert(step.padded.tokens);
  } else {
    coverage_.dropped_tails.insert(step.padded.sequences);
  }
}

void Executor::warm_up(const std::vector<StepShape>& shapes) {
  // Smallest first: launches that many sizes share have least to do there.
  for (auto shape = shapes.rbegin(); shape != shapes.rend(); ++shape) {
    bool is_begun = false;
    const auto warm = [&](const std::vector<Launch>& table) {
      for (const Launch& launch : table) {
        if (!warm_.insert(signature(launch)).second) continue;
        if (!is_begun) copy_padding(*shape);
        is_begun = true;
        stream_->launch({launch.op->name, launch.node, std::nullopt}, launch.bound, *shape);
      }
    };
    for (int segment = 0; segment < tables_.num_segments(); ++segment)
      warm(tables_.at(segment, *shape));
    if (tables_.uses_merged(*shape)) warm(tables_.merged(*shape));
  }
  stream_->synchronize();
}

void Executor::copy_padding(const StepShape& step) {
  inputs_.begin({0, 0}, step.padded);
  inputs_.copy(*stream_);
}

void Executor::run_on_padding(const StepRequest& request) {
  const Choice choice = choose(request, coverage_);
  const StepShape step{choice.padded, choice.q, choice.q, 0};
  const std::optional<int> lru = coverage_.sequences.lru();
  if (lru && choice.mode == Mode::kFull) record_on_demand(step, *lru);
  copy_padding(step);
  walk(step, choice.mode);
  // A device may set up loops when it first runs one. This one ends at once: no row goes on.
  const Recording* burst = step.q == 1 ? recordings_.burst(step.padded.sequences) : nullptr;
  if (burst != nullptr) replay(*burst);
  tables_.launch_all(*stream_, step);
  stream_->synchronize();
}

void Executor::record_on_demand(const StepShape& step, int capacity) {
  const std::pair<int64_t, int> key(step.padded.sequences, step.q);
  recent_.remove(key);
  recent_.push_front(key);
  if (recordings_.full(key.first, key.second) != nullptr) return;
  if (std::ssize(recent_) > capacity) {
    stream_->synchronize();  // it may be running
    recordings_.erase_full(recent_.back().first, recent_.back().second);
    recent_.pop_back();
  }
  try {
    recordings_.record_full(step);
  } catch (const Error& error) {
    log::warning("{}; its steps run eager", error.what());
    coverage_.dropped_full.insert(key);
    recent_.pop_front();
  }
}

}  // namespace encore::runtime
