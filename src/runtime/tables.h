// Keeps the launches of each segment at each step shape: lowered once, launched eagerly or
// recorded.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "passes/program.h"
#include "runtime/lower.h"

namespace encore::runtime {

// Lifetime: refers to the device, the program and the addresses. Threads: one.
class Tables {
 public:
  // A segment, and those sizes of the step that the segment depends on. The other sizes are fixed,
  // so that steps which differ only in those share its table and its recording.
  using Key = std::pair<int, StepKey>;

  Tables(Device& device, const passes::Program& program, const Addresses& addresses);

  [[nodiscard]] Key key(int segment, const StepKey& step) const;
  // The table of one segment, lowered at first use. A table of a step that lower_all() did not
  // lower may be dropped at the next call, to make room. Errors: kUnsupported or kCompile naming
  // the op.
  const std::vector<Launch>& at(int segment, const StepKey& step);
  // Lowers every segment, and keeps the tables.
  void lower_all(const StepKey& step);
  // May a recording hold the step, or one segment of it: does no kernel that was chosen follow
  // lengths that only the host knows?
  bool recordable(const StepKey& step);
  bool recordable(int segment, const StepKey& step);

  // The reasons why the step is slow (Kernel::slow), once each; none if it is not.
  [[nodiscard]] std::set<std::string_view> slow_reasons(const StepKey& step);

  // Lists the launches of lower_all(), a line each: step, segment, node, kernel, and the shapes that decide
  // its grid.
  [[nodiscard]] std::string to_text() const;

  // Enqueues the launches of segments [first, last), in order.
  void launch(Stream& stream, int first, int last, const Step& step);

  // Tables of steps that lower_all() did not lower: steps above the ladders come in any size.
  static constexpr size_t kMaxPassing = 4096;
  [[nodiscard]] int num_tables() const {
    return static_cast<int>(tables_.size() + passing_.size());
  }
  [[nodiscard]] int num_segments() const { return static_cast<int>(program_.segments.size()); }

 private:
  // The sizes that a segment's launches depend on.
  [[nodiscard]] passes::UsedSizes used_sizes(const passes::Segment& segment) const;
  // The launches of a segment.
  [[nodiscard]] std::vector<Launch> lower_segment(const Key& key) const;

  Device& device_;
  const passes::Program& program_;
  const Addresses& addresses_;
  std::vector<passes::UsedSizes> used_sizes_;  // by segment
  std::map<Key, std::vector<Launch>> tables_;
  std::map<Key, std::vector<Launch>> passing_;  // kMaxPassing at most
};

}  // namespace encore::runtime
