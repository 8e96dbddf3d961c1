#include "runtime/recordings.h"

#include "base/elapsed.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/dispatch.h"

namespace encore::runtime {
namespace {

// Says how to avoid a recording that failed, as the end of its message.
std::string_view remedy(ErrorKind kind) {
  if (kind == ErrorKind::kMemory) {
    return "record fewer or smaller sizes (`encore graphs --estimate` says what they take; "
           "--decode-ladder, --token-ladder, --max-batch-size, --max-num-tokens), leave out what "
           "fails (--recording-errors drop), or record nothing (--graphs none)";
  }
  return "leave it out (--recording-errors drop), record pieces alone (--graphs piecewise) or "
         "nothing (--graphs none)";
}

// Returns the recording for a key, or null where there is none.
template <typename Made>
const Recording* find(const Made& made, const typename Made::key_type& key) {
  const auto place = made.find(key);
  return place == made.end() ? nullptr : place->second.get();
}

}  // namespace

bool record_or_drop(RecordingErrors policy, const std::function<void()>& record,
                    std::string_view what) {
  try {
    record();
    return true;
  } catch (const Error& error) {
    if (policy == RecordingErrors::kStop)
      fail(error.kind(), "{}{}; {}", what, error.what(), remedy(error.kind()));
    log::warning("{}{}; going on without this recording", what, error.what());
    return false;
  }
}

std::unique_ptr<Recording> Recordings::record(const std::string& what, RecordingStats::Part& part,
                                              const std::function<void()>& work,
                                              const int32_t* again, const Recording* like) {
  try {
    RecordingScope scope(stream_, again);
    part.capture_ms += elapsed_ms(work);
    std::unique_ptr<Recording> recording;
    part.instantiate_ms += elapsed_ms([&] { recording = scope.finish(like); });
    ++part.recordings;
    part.executables += recording->shares_executable() ? 0 : 1;
    part.nodes += recording->num_nodes();
    return recording;
  } catch (const Error& error) {
    fail(error.kind(), "recording {}: {}", what, error.what());
  }
}

void Recordings::record_full(const StepKey& step) {
  RecordingStats::Part& part = step.is_uniform() ? stats_.full : stats_.mixed;
  full_[{step, StepPart::kWhole}] = record(describe(step) + " in full", part, [&] {
    tables_.launch(stream_, 0, tables_.num_segments(), {step, {}});
  });
}

void Recordings::erase_full(const StepKey& step) {
  stats_.full.erased += static_cast<int>(full_.erase({step, StepPart::kWhole}));
  for (const StepPart half : {StepPart::kToLogits, StepPart::kFromLogits})
    stats_.halves.erased += static_cast<int>(full_.erase({step, half}));
}

void Recordings::record_burst(const StepKey& step) {
  const auto clock = program_.graph.find_value("step_clock");
  ENCORE_CHECK(clock, "a program without `advance` has no bursts");
  const auto* goes_on = addresses_.view(*clock, {}).as<const int32_t>() + 1;
  const auto work = [&] {
    for (int i = 0; i < kStepsPerIteration; ++i)
      tables_.launch(stream_, 0, tables_.num_segments(), {step, {}});
  };
  bursts_[step] = record("a burst of " + describe(step), stats_.bursts, work, goes_on);
}

void Recordings::require_halves(const StepKey& step) {
  for (const StepPart part : {StepPart::kToLogits, StepPart::kFromLogits}) {
    if (full(step, part) != nullptr) continue;
    const auto [first, last] = segments(part);
    const auto what = fmt::format("segments {} to {} of {}", first, last - 1, describe(step));
    full_[{step, part}] = record(what, stats_.halves, [&, first = first, last = last] {
      tables_.launch(stream_, first, last, {step, {}});
    });
  }
}

std::pair<int, int> Recordings::segments(StepPart part) const {
  const int middle = program_.first_awaiting_host();
  return {part == StepPart::kFromLogits ? middle : 0,
          part == StepPart::kToLogits ? middle : tables_.num_segments()};
}

const Recording* Recordings::burst(const StepKey& step) const {
  return find(bursts_, step);
}

void Recordings::record_piece(int segment, const StepKey& step) {
  const std::string what =
      fmt::format("segment {} at {} tokens, {} sequences", segment, step.tokens, step.sequences);
  if (!tables_.recordable(segment, step)) {
    fail(ErrorKind::kUnsupported,
         "{}: a kernel follows lengths that only the host knows: --split-at its op", what);
  }
  auto piece = record(
      what, stats_.pieces,
      [&] {
        tables_.launch(stream_, segment, segment + 1, {step, {}});
      },
      nullptr, newest_piece_);
  newest_piece_ = piece.get();
  pieces_[tables_.key(segment, step)] = std::move(piece);
}

const Recording* Recordings::full(const StepKey& step, StepPart part) const {
  return find(full_, {step, part});
}

const Recording* Recordings::piece(int segment, const StepKey& step) const {
  return find(pieces_, tables_.key(segment, step));
}

std::string to_text(const RecordingStats& stats) {
  const std::string replays =
      stats.replays > 0 ? fmt::format("; {} replays", stats.replays) : std::string();
  const auto part = [](const char* name, const RecordingStats::Part& part) {
    return part.recordings == 0
               ? std::string()
               : fmt::format("; {}: {} in {:.1f} ms, {:.1f} of them capture, {} executables", name,
                             part.recordings, part.ms(), part.capture_ms, part.executables);
  };
  return fmt::format(
      "{} sizes lowered to {} tables in {:.1f} ms, warmed up in {:.1f} ms{}{}{}{}{}{}", stats.sizes,
      stats.tables, stats.lower_ms, stats.warm_up_ms, part("full recordings", stats.full),
      part("of mixed steps", stats.mixed), part("pieces", stats.pieces),
      part("bursts", stats.bursts), part("halves", stats.halves), replays);
}

}  // namespace encore::runtime
