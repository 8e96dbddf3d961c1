// What each segment launches at each step shape: lowered once, launched eagerly or recorded.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "passes/program.h"
#include "runtime/lower.h"

namespace encore::runtime {

// Lifetime: refers to the device, the program and the addresses. Threads: one.
class Tables {
 public:
  // A segment and the step as far as the segment depends on it: the rest is fixed, so that steps
  // which differ only in that share its table and its recording.
  using Key = std::pair<int, StepKey>;

  Tables(Device& device, const passes::Program& program, const Addresses& addresses);

  [[nodiscard]] Key key(int segment, const StepKey& step) const;
  // The table of one segment, lowered at first use. Errors: kUnsupported or kCompile naming the op.
  const std::vector<Launch>& at(int segment, const StepKey& step);
  // Lowers every segment.
  void lower_all(const StepKey& step);
  // May one recording hold the whole step: does no launch follow lengths that only the host knows?
  bool recordable(const StepKey& step);

  // Enqueues the launches of one segment (at most the first `limit`), or of all in order.
  void launch(Stream& stream, int segment, const Step& step,
              size_t limit = std::numeric_limits<size_t>::max());
  void launch_all(Stream& stream, const Step& step) {
    launch_segments(stream, 0, num_segments(), step);
  }
  // Those of segments [first, last).
  void launch_segments(Stream& stream, int first, int last, const Step& step);

  // What no longer lies where the segment's table, and so its recording, has it: "op 'x': %y was at
  // 0x10 and is at 0x20". Empty: everything does.
  [[nodiscard]] std::string moved_operand(int segment, const StepKey& step);

  [[nodiscard]] int num_tables() const { return static_cast<int>(tables_.size()); }
  [[nodiscard]] int num_segments() const { return static_cast<int>(program_.segments.size()); }

 private:
  // What a segment's launches depend on.
  struct Dependence {
    bool on_tokens = false;
    bool on_sequences = false;
    bool on_q = false;
  };
  [[nodiscard]] Dependence dependence(const passes::Segment& segment) const;
  [[nodiscard]] std::string moved_operand(const Launch& launch, const ir::Sizes& sizes) const;

  Device& device_;
  const passes::Program& program_;
  const Addresses& addresses_;
  std::vector<Dependence> dependences_;  // by segment
  std::map<Key, std::vector<Launch>> tables_;
};

}  // namespace encore::runtime
