#include "planning/cost_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/shapes.h"

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
  for (const auto* part : {&full, &mixed, &tokens, &tails}) {
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
                                      const runtime::Coverage& coverage) {
  RecordingEstimate estimate;
  const Launches whole = launches_of(program, 0, program.graph.num_nodes());
  std::set<int64_t> pieces_of_tokens;
  std::set<int64_t> pieces_of_sequences;
  for (const int64_t size : coverage.sequences.sizes()) {
    if (coverage.uniform_full)
      add_recording(estimate.full.emplace_back(BucketCost{size}), whole, false);
    if (!coverage.uniform_pieces) continue;
    pieces_of_tokens.insert(size);
    pieces_of_sequences.insert(size);
  }
  for (const StepShape& shape : mixed_shapes(coverage.mixed_ladder(), coverage.tokens)) {
    const auto [tokens, sequences] = shape.padded;
    if (coverage.mixed_full) {
      if (estimate.mixed.empty() || estimate.mixed.back().size != tokens)
        estimate.mixed.push_back(BucketCost{tokens});
      add_recording(estimate.mixed.back(), whole, false);
    }
    if (!coverage.mixed_pieces) continue;
    pieces_of_tokens.insert(tokens);
    pieces_of_sequences.insert(sequences);
  }
  std::reverse(estimate.mixed.begin(), estimate.mixed.end());  // ascending, as the others
  for (const int64_t size : pieces_of_tokens)
    estimate.tokens.push_back(pieces(program, ir::Symbol::kTokens, size));
  for (const int64_t size : pieces_of_sequences)
    estimate.tails.push_back(pieces(program, ir::Symbol::kSequences, size));
  return estimate;
}

}  // namespace encore::planning
