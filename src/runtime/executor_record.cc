// How an executor makes its recordings: tune, warm up, record, and run the worst step of each mode.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "backend/tuning.h"
#include "base/log.h"
#include "runtime/elapsed.h"
#include "runtime/executor.h"
#include "runtime/shapes.h"

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
  const auto uniform = uniform_shapes(coverage_.sequences, options_.limits);
  const auto mixed = mixed_shapes(coverage_.mixed_ladder(), coverage_.tokens);
  const auto above = above_shapes(coverage_.sequences, coverage_.tokens, options_.limits);
  RecordingStats& stats = recordings_.stats();
  stats.segments = tables_.num_segments();
  const int64_t at_start = device_.used_bytes().value_or(0);
  stats.lower_ms = elapsed_ms([&] {
    const Tuner::Phase tuning(device_.tuner());
    log::Progress progress("choosing kernels for",
                           static_cast<double>(uniform.size() + mixed.size() + above.size()),
                           "sizes", kWorthALine);
    int done = 0;
    for (const auto* shapes : {&uniform, &mixed, &above}) {
      for (const StepKey& shape : *shapes) {
        lower_size(shape);
        progress.update(++done);
      }
    }
  });
  plan_recordings(mixed);
  stats.sizes = static_cast<int>(uniform.size() + mixed.size());
  stats.tables = tables_.num_tables();
  stats.warm_up_ms = elapsed_ms([&] {
    page_table_.warm_up(*stream_);
    token_state_.warm_up(*stream_);
    for (const auto* shapes : {&uniform, &mixed, &above}) {
      if (shapes->empty()) continue;
      warm_up(*shapes);
      // The worst step, so that nothing is set up later.
      copy_padding(shapes->front());
      tables_.launch_all(*stream_, {shapes->front(), {}});
      stream_->synchronize();
    }
  });
  const int64_t warm = device_.used_bytes().value_or(0);
  memory_plan_.libraries = warm - at_start;
  if (on_demand_ && coverage_.uniform_full) {
    // As many as there will ever be, so that their memory is taken before KV's: the smallest.
    const auto count = std::min<int64_t>(on_demand_->capacity(), std::ssize(uniform));
    for (auto shape = uniform.end() - count; shape != uniform.end(); ++shape) {
      record_or_drop([&] { on_demand_->require(*shape); },
                     [&] { coverage_.dropped_full.insert(*shape); });
    }
  } else {
    record_shapes(uniform, coverage_.uniform_full, coverage_.uniform_pieces);
  }
  record_shapes(mixed, coverage_.mixed_full, coverage_.mixed_pieces);
  weigh_pieces(mixed);
  // The worst step as it is replayed.
  run_on_padding(uniform.front());
  run_on_padding(mixed.front());
  recount();
  memory_plan_.recordings = device_.used_bytes().value_or(0) - warm;
  return stats;
}

void Executor::plan_recordings(const std::vector<StepKey>& mixed) {
  const bool any = program_.full_recordable();
  const Recordable recordable{
      any, any && std::all_of(mixed.begin(), mixed.end(),
                              [&](const StepKey& shape) { return tables_.recordable(shape); })};
  runtime::plan_recordings(coverage_, recordable);
  if (options_.record_all_modes) {
    coverage_.uniform_full = recordable.uniform;
    coverage_.mixed_full = recordable.mixed;
    coverage_.uniform_pieces = true;
    coverage_.mixed_pieces = true;
  }
  if (on_demand_ && coverage_.uniform_pieces) {
    fail(ErrorKind::kUsage,
         "--decode-ladder lru:{} records whole decode steps when they come, and not their pieces: "
         "take a list or another schedule",
         on_demand_->capacity());
  }
}

void Executor::record_shapes(std::vector<StepKey> shapes, bool full, bool pieces) {
  if (options_.record_order == RecordOrder::kAscending) std::reverse(shapes.begin(), shapes.end());
  log::Progress progress("recording", static_cast<double>(shapes.size()), "sizes", kWorthALine);
  int done = 0;
  for (const StepKey& shape : shapes) {
    progress.update(done++);
    const RecordingStats before = recordings_.stats();
    if (full) {
      record_or_drop([&] { recordings_.record_full(shape); },
                     [&] { coverage_.dropped_full.insert(shape); });
      // Without its burst a size still has single steps.
      if (options_.bursts && shape.q == 1)
        record_or_drop([&] { recordings_.record_burst(shape); }, [] {});
    }
    for (int segment = 0; pieces && segment < tables_.num_segments(); ++segment) {
      if (!recordings_.in_pieces(segment) || recordings_.piece(segment, shape) != nullptr) continue;
      record_or_drop([&] { recordings_.record_piece(segment, shape); },
                     [&] { drop_piece(segment, shape); });
    }
    const RecordingStats& after = recordings_.stats();
    const int num_full = after.num_full() - before.num_full();
    const int num_pieces = after.pieces.recordings - before.pieces.recordings;
    if (num_full + num_pieces == 0) continue;
    log::debug("recorded {}: {} in full, {} pieces, {:.1f} ms", describe(shape), num_full,
               num_pieces, after.ms() - before.ms());
  }
}

void Executor::lower_size(const StepKey& step) {
  const TuningStats before = device_.tuner().stats();
  const int tables_before = tables_.num_tables();
  const double ms = elapsed_ms([&] { tables_.lower_all(step); });
  const TuningStats after = device_.tuner().stats();
  const int tables = tables_.num_tables() - tables_before;
  if (tables == 0) return;  // other sizes had them all
  log::debug("compiled {}: {} tables, {} kernels measured, {} from the tuning cache, {:.1f} ms",
             describe(step), tables, after.measured - before.measured, after.cached - before.cached,
             ms);
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

void Executor::drop_piece(int segment, const StepKey& step) {
  if (program_.segments[segment].rows == ir::Symbol::kTokens) {
    coverage_.dropped_tokens.insert(step.tokens);
  } else {
    coverage_.dropped_tails.insert(step.sequences);
  }
}

// On padding: attention, which has nothing to do there, is launched alike in both ways.
void Executor::weigh_pieces(const std::vector<StepKey>& mixed) {
  if (coverage_.graphs != Graphs::kAuto || coverage_.eager_steps == EagerSteps::kForbid) return;
  constexpr std::array kModes = {Mode::kPiecewise, Mode::kEager};
  const std::array ways = {std::string(name(kModes[0])), std::string(name(kModes[1]))};
  const Tuner::Phase tuning(device_.tuner());
  std::set<int64_t> weighed;
  for (const StepKey& shape : mixed) {
    if (choose(shape, coverage_).mode != Mode::kPiecewise) continue;
    if (!weighed.insert(shape.tokens).second) continue;
    const Step step{shape, {.max_query_len = shape.tokens}};
    std::string table;
    for (int segment = 0; segment < tables_.num_segments(); ++segment)
      table += print(program_, tables_.at(segment, shape));
    copy_padding(shape);
    const std::string way = device_.tuner().choose(
        fmt::format("mixed step {}, {} of {:016x}", shape.tokens, shape.sequences, hash(table)),
        ways, [&](size_t i) {
          const auto time = [&] {
            stream_->synchronize();
            return 1e3 * elapsed_ms([&] {
                     enqueue(step, kModes[i]);
                     stream_->synchronize();
                   });
          };
          // The better of two: one that the host was held up in must not end a mode's chances.
          return std::min(time(), time());
        });
    if (way == ways[1]) coverage_.faster_eager.insert(shape.tokens);
  }
}

void Executor::warm_up(const std::vector<StepKey>& shapes) {
  // Smallest first: launches that many sizes share have least to do there.
  for (auto shape = shapes.rbegin(); shape != shapes.rend(); ++shape) {
    bool is_begun = false;
    const auto warm = [&](const std::vector<Launch>& table) {
      for (const Launch& launch : table) {
        if (!warm_.insert(signature(launch)).second) continue;
        if (!is_begun) copy_padding(*shape);
        is_begun = true;
        stream_->launch({launch.kernel->op, launch.id, std::nullopt}, launch.bound, {});
      }
    };
    for (int segment = 0; segment < tables_.num_segments(); ++segment)
      warm(tables_.at(segment, *shape));
  }
  stream_->synchronize();
}

void Executor::copy_padding(const StepKey& step) {
  inputs_.begin({0, 0}, step.sizes());
  inputs_.copy(*stream_);
}

void Executor::run_on_padding(const StepKey& step) {
  const auto [mode, key, padding, reason, rule] = choose(step, coverage_);
  if (mode == Mode::kEager) return;
  if (on_demand_ && mode == Mode::kFull && step.is_uniform()) record_on_demand(key);
  copy_padding(key);
  enqueue({key, {}}, mode);
  // A device may set up loops when it first runs one. This one ends at once: no row goes on.
  const Recording* burst = key.q == 1 ? recordings_.burst(key.sequences) : nullptr;
  if (burst != nullptr) replay(*burst);
  stream_->synchronize();
}

void Executor::record_on_demand(const StepKey& step) {
  try {
    on_demand_->require(step);
  } catch (const Error& error) {
    log::warning("{}; its steps run eager", error.what());
    coverage_.dropped_full.insert(step);
  }
}

}  // namespace encore::runtime
