// Keeps a table of launches for each segment and each step shape. A table is lowered once; its
// launches are then enqueued by eager steps, or recorded.
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

// The tables of launches of one program. Lifetime: refers to the device, the program and the
// addresses. Threads: one.
class Tables {
 public:
  // A segment, and the sizes of the step on which its launches depend. Sizes on which they do not
  // depend have a fixed value in the key, so steps that differ only in such sizes share the
  // segment's table and its recording.
  using Key = std::pair<int, StepKey>;

  Tables(Device& device, const passes::Program& program, const Addresses& addresses);

  [[nodiscard]] Key key(int segment, const StepKey& step) const;
  // Returns the table of one segment, which is lowered at the first call. A table for a step that
  // lower_all() was not called for may be dropped at the next call, to make room. Errors:
  // kUnsupported or kCompile naming the op.
  const std::vector<Launch>& at(int segment, const StepKey& step);
  // Lowers every segment for this step shape, and keeps the tables for good.
  void lower_all(const StepKey& step);
  // Return whether a recording may hold the step, or one segment of it. A recording may not hold
  // launches of a kernel that reads StepLengths, which only the host knows.
  bool recordable(const StepKey& step);
  bool recordable(int segment, const StepKey& step);

  // Returns each reason why the step is slow (Kernel::slow) once. Empty if the step is not slow.
  [[nodiscard]] std::set<std::string_view> slow_reasons(const StepKey& step);

  // Lists the launches of lower_all(), one on each line: step, segment, node, kernel, and the
  // shapes that decide its grid.
  [[nodiscard]] std::string to_text() const;

  // Enqueues the launches of segments [first, last), in order.
  void launch(Stream& stream, int first, int last, const Step& step);

  // The most tables that are kept for steps that lower_all() was not called for. Such steps are
  // above the ladders and come in any size.
  static constexpr size_t kMaxPassing = 4096;
  [[nodiscard]] int num_tables() const {
    return static_cast<int>(tables_.size() + passing_.size());
  }
  [[nodiscard]] int num_segments() const { return static_cast<int>(program_.segments.size()); }

 private:
  // Returns which sizes of a step the launches of a segment depend on.
  [[nodiscard]] passes::UsedSizes used_sizes(const passes::Segment& segment) const;
  // Makes the launches of a segment.
  [[nodiscard]] std::vector<Launch> lower_segment(const Key& key) const;

  Device& device_;
  const passes::Program& program_;
  const Addresses& addresses_;
  std::vector<passes::UsedSizes> used_sizes_;  // indexed by segment
  std::map<Key, std::vector<Launch>> tables_;
  std::map<Key, std::vector<Launch>> passing_;  // tables that may be dropped, kMaxPassing at most
};

}  // namespace encore::runtime
