// Makes and keeps the recordings of a program: recordings of whole steps, and of the pieces of a
// step. Between its pieces, a step has launches that no piece holds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backend/device.h"
#include "passes/program.h"
#include "runtime/tables.h"

namespace encore::runtime {

// A whole step, or one of its halves. The first half ends with the logits, and the second begins
// there. The host writes token masks between the halves.
enum class StepPart : uint8_t { kWhole, kToLogits, kFromLogits };

struct RecordingStats {
  struct Part {
    int recordings = 0;   // number of recordings made
    int erased = 0;       // recordings erased to make room for others
    int executables = 0;  // driver executables; fewer where recordings share one
    int nodes = 0;
    double capture_ms = 0;
    double instantiate_ms = 0;  // time to instantiate and upload them
    [[nodiscard]] double ms() const { return capture_ms + instantiate_ms; }
  };
  Part full;   // whole uniform steps
  Part mixed;  // whole mixed steps
  Part pieces;
  Part bursts;
  Part halves;            // halves of whole steps, made at start-up or on demand
  int segments = 0;       // segments of the program
  int sizes = 0;          // step shapes lowered at start
  int tables = 0;         // tables of launches made; shapes share the tables of segments
  double lower_ms = 0;    // time to choose and bind kernels
  double warm_up_ms = 0;  // time to launch each kernel once
  // The growth of the driver's count of used memory, in bytes: `library_bytes` by loading the code
  // of kernels and of cuBLASLt, and `bytes` by making recordings.
  int64_t library_bytes = 0;
  int64_t bytes = 0;
  int64_t replays = 0;  // all replays so far

  [[nodiscard]] int num_full() const { return full.recordings + mixed.recordings; }
  // Returns the time that start-up took to make recordings. Units: milliseconds.
  [[nodiscard]] double ms() const { return full.ms() + mixed.ms() + pieces.ms() + bursts.ms(); }
};

// Describes the figures for people: "12 sizes lowered to 30 tables in 91.0 ms, warmed up in 5.0 ms;
// full recordings: 51 in 140.2 ms, 90.1 of them capture, 3 executables".
std::string to_text(const RecordingStats& stats);

// Says what a recording that fails leads to (--recording-errors).
enum class RecordingErrors : uint8_t {
  kStop,  // the error ends the start-up; the default
  kDrop,  // the engine goes on without it; its steps run in pieces where there are some,
          // else eager, and are counted
};

// Calls `record`. Where that fails, kStop throws the error with a remedy, and kDrop logs it and
// returns false. `what` begins the message.
bool record_or_drop(RecordingErrors policy, const std::function<void()>& record,
                    std::string_view what = "");

// Makes, keeps and finds recordings. Lifetime: refers to the program, the addresses, the tables and
// the stream. Threads: one.
class Recordings {
 public:
  Recordings(const passes::Program& program, const Addresses& addresses, Tables& tables,
             Stream& stream)
      : program_(program), addresses_(addresses), tables_(tables), stream_(stream) {}

  // Records a whole step. Errors: the device's errors, naming op and size; no recording is kept
  // then.
  void record_full(const StepKey& step);
  // Erases the recordings of a uniform step and of its halves.
  void erase_full(const StepKey& step);
  // The number of steps in one iteration of a recorded loop. The loop decides once an iteration
  // whether to go on, which costs the device some microseconds, so an iteration has several steps.
  // A burst may therefore run up to kStepsPerIteration - 1 steps longer than asked.
  static constexpr int kStepsPerIteration = 8;
  // Records a burst: a loop of whole uniform steps. Errors: as record_full().
  void record_burst(const StepKey& step);
  // Records both halves of a whole step, unless they are recorded already. Errors: as
  // record_full().
  void require_halves(const StepKey& step);
  // Records one piece of a step. Errors: as record_full(), naming the segment.
  void record_piece(int segment, const StepKey& step);

  // Return the recording of a whole step or of a half, of a burst, or of a piece. Null where there
  // is none.
  [[nodiscard]] const Recording* full(const StepKey& step, StepPart part = StepPart::kWhole) const;
  [[nodiscard]] const Recording* burst(const StepKey& step) const;
  [[nodiscard]] const Recording* piece(int segment, const StepKey& step) const;
  // Returns the segments [first, last) that belong to a part of a step.
  [[nodiscard]] std::pair<int, int> segments(StepPart part) const;

  // Return all recordings of one kind, keyed by step shape.
  [[nodiscard]] const auto& all_full() const { return full_; }
  [[nodiscard]] const auto& all_bursts() const { return bursts_; }
  [[nodiscard]] const auto& all_pieces() const { return pieces_; }

  [[nodiscard]] const RecordingStats& stats() const { return stats_; }
  [[nodiscard]] RecordingStats& stats() { return stats_; }

 private:
  // Records the launches that `work` makes. Where `again` is given, the recording is a loop. `what`
  // names the recording in errors. `like` has the meaning that it has in Stream::end_recording().
  std::unique_ptr<Recording> record(const std::string& what, RecordingStats::Part& part,
                                    const std::function<void()>& work,
                                    const int32_t* again = nullptr,
                                    const Recording* like = nullptr);

  const passes::Program& program_;
  const Addresses& addresses_;
  Tables& tables_;
  Stream& stream_;
  std::map<std::pair<StepKey, StepPart>, std::unique_ptr<Recording>> full_;
  std::map<StepKey, std::unique_ptr<Recording>> bursts_;
  std::map<Tables::Key, std::unique_ptr<Recording>> pieces_;
  const Recording* newest_piece_ = nullptr;  // often like the next piece
  RecordingStats stats_;
};

}  // namespace encore::runtime
