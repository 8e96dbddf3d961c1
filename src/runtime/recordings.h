// The recordings of a program: a whole step, or the pieces of a step between the launches that
// pieces leave out.
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

// A whole step, or one of its halves: up to its logits, and from there on, where the host has masks
// of tokens to write in between.
enum class StepPart : uint8_t { kWhole, kToLogits, kFromLogits };

struct RecordingStats {
  struct Part {
    int recordings = 0;   // made
    int erased = 0;       // of those, to make room for others
    int executables = 0;  // fewer where recordings share one
    int nodes = 0;
    double capture_ms = 0;
    double instantiate_ms = 0;  // and upload
    [[nodiscard]] double ms() const { return capture_ms + instantiate_ms; }
  };
  Part full;   // uniform steps
  Part mixed;  // whole mixed steps
  Part pieces;
  Part bursts;
  Part halves;            // of whole steps, made when they are first needed or at start
  int segments = 0;       // of the program
  int sizes = 0;          // step shapes lowered at start
  int tables = 0;         // tables made for them, as shapes share the tables of segments
  double lower_ms = 0;    // kernels and algorithms chosen and bound
  double warm_up_ms = 0;  // each kernel launched once
  // The growth of the driver's figure: by the code of kernels and libraries, and by recordings.
  int64_t library_bytes = 0;
  int64_t bytes = 0;
  int64_t replays = 0;  // since

  [[nodiscard]] int num_full() const { return full.recordings + mixed.recordings; }
  // The time to make the recordings of the start.
  [[nodiscard]] double ms() const { return full.ms() + mixed.ms() + pieces.ms() + bursts.ms(); }
};

// "12 sizes lowered to 30 tables in 91.0 ms, warmed up in 5.0 ms; full recordings: 51 in 140.2 ms, 90.1
// of them capture, 3 executables".
std::string to_text(const RecordingStats& stats);

// A recording that fails (--recording-errors).
enum class RecordingErrors : uint8_t {
  kStop,  // the error ends the start-up; the default
  kDrop,  // the engine goes on without that recording; its steps run in pieces where there are some,
          // else eager, and are counted
};

// Calls `record`. By policy, an error ends the start-up, with the remedy, or leaves this recording
// out; then it returns false. `what` begins the message.
bool record_or_drop(RecordingErrors policy, const std::function<void()>& record,
                    std::string_view what = "");

// Lifetime: refers to the program, the addresses, the tables and the stream. Threads: one.
class Recordings {
 public:
  Recordings(const passes::Program& program, const Addresses& addresses, Tables& tables,
             Stream& stream)
      : program_(program), addresses_(addresses), tables_(tables), stream_(stream) {}

  // Records a whole step. Errors: the device's, naming op and size; nothing is kept then.
  void record_full(const StepKey& step);
  // Erases a uniform step and its halves.
  void erase_full(const StepKey& step);
  // A loop asks once an iteration whether to go on, which costs the device some microseconds: an
  // iteration is worth several steps. So a burst may run up to this less one longer than asked.
  static constexpr int kStepsPerIteration = 8;
  // Records a loop of whole uniform steps. Errors: as record_full().
  void record_burst(const StepKey& step);
  // Records both halves of a whole step, unless that is done. Errors: as record_full().
  void require_halves(const StepKey& step);
  // Records one piece of a step. Errors: as record_full(), naming the segment.
  void record_piece(int segment, const StepKey& step);

  // The recording; null when there is none.
  [[nodiscard]] const Recording* full(const StepKey& step, StepPart part = StepPart::kWhole) const;
  [[nodiscard]] const Recording* burst(const StepKey& step) const;
  [[nodiscard]] const Recording* piece(int segment, const StepKey& step) const;
  // The segments of a part: [first, last).
  [[nodiscard]] std::pair<int, int> segments(StepPart part) const;

  // All recordings, by size.
  [[nodiscard]] const auto& all_full() const { return full_; }
  [[nodiscard]] const auto& all_bursts() const { return bursts_; }
  [[nodiscard]] const auto& all_pieces() const { return pieces_; }

  [[nodiscard]] const RecordingStats& stats() const { return stats_; }
  [[nodiscard]] RecordingStats& stats() { return stats_; }

 private:
  // Records the launches of `work`; as a loop, when `again` is given. `what` names the recording in
  // errors; `like` as for Stream::end_recording().
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
  const Recording* newest_piece_ = nullptr;  // most often of the layer before, so like the next one
  RecordingStats stats_;
};

}  // namespace encore::runtime
