#include "planning/cost_model.h"

#include <cmath>
#include <set>

namespace encore::planning {
namespace {

// What tells launches apart but for their addresses.
struct LaunchForm {
  const ir::Op* op = nullptr;
  std::vector<ir::Type> inputs;
  std::vector<ir::Type> outputs;
  friend bool operator==(const LaunchForm&, const LaunchForm&) = default;
};
using Launches = std::vector<LaunchForm>;

Launches launches_of(const passes::Program& program, int first, int last) {
  Launches launches;
  for (int i = first; i < last; ++i) {
    const ir::Node& node = program.graph.nodes()[i];
    if (node.op->is_view) continue;
    launches.push_back(
        {node.op, ir::input_types(program.graph, node), ir::output_types(program.graph, node)});
  }
  return launches;
}

void add_recording(BucketCost& cost, const Launches& launches, bool shares_executable) {
  const int nodes = static_cast<int>(launches.size());
  ++cost.recordings;
  cost.nodes += nodes;
  cost.executables += shares_executable ? 0 : 1;
  cost.executable_nodes += shares_executable ? 0 : nodes;
}

// The pieces that count `rows`, at one bucket.
BucketCost pieces(const passes::Program& program, ir::Symbol rows, int64_t size) {
  BucketCost cost{size};
  Launches before;
  for (const passes::Segment& segment : program.segments) {
    if (segment.capture != ir::Capture::kAlways || segment.rows != rows) continue;
    Launches launches = launches_of(program, segment.first, segment.last);
    add_recording(cost, launches, launches == before);
    before = std::move(launches);
  }
  return cost;
}

}  // namespace

double BucketCost::milliseconds() const {
  return (recordings * kUsPerRecording + nodes * kCaptureUsPerNode +
          executable_nodes * kInstantiateUsPerNode +
          (nodes - executable_nodes) * kSharedUsPerNode) /
         1e3;
}

int64_t BucketCost::bytes() const {
  return std::llround(executables * kBytesPerExecutable + executable_nodes * kBytesPerNode);
}

BucketCost RecordingEstimate::total() const {
  BucketCost total;
  for (const auto* part : {&full, &tokens, &tails}) {
    for (const BucketCost& cost : *part) {
      total.recordings += cost.recordings;
      total.nodes += cost.nodes;
      total.executables += cost.executables;
      total.executable_nodes += cost.executable_nodes;
    }
  }
  return total;
}

RecordingEstimate estimate_recordings(const passes::Program& program,
                                      const runtime::Ladder& sequences,
                                      const runtime::Ladder& tokens) {
  RecordingEstimate estimate;
  const bool full = program.full_recordable();
  std::set<int64_t> token_sizes(tokens.sizes().begin(), tokens.sizes().end());
  const Launches whole = launches_of(program, 0, program.graph.num_nodes());
  for (const int64_t size : sequences.sizes()) {
    if (full) add_recording(estimate.full.emplace_back(BucketCost{size}), whole, false);
    // Without full recordings, uniform steps too take pieces of so many tokens.
    if (!full) token_sizes.insert(size);
    estimate.tails.push_back(pieces(program, ir::Symbol::kSequences, size));
  }
  for (const int64_t size : token_sizes)
    estimate.tokens.push_back(pieces(program, ir::Symbol::kTokens, size));
  return estimate;
}

}  // namespace encore::planning
