#include "runtime/cost_model.h"

#include <cmath>
#include <set>

namespace encore::runtime {
namespace {

int num_launches(const passes::Program& program, int first, int last) {
  int launches = 0;
  for (int i = first; i < last; ++i)
    launches += program.graph.nodes()[i].op->is_view ? 0 : 1;
  return launches;
}

// The pieces that count `rows`, at one bucket.
BucketCost pieces(const passes::Program& program, ir::Symbol rows, int64_t size) {
  BucketCost cost{size, 0, 0};
  for (const passes::Segment& segment : program.segments) {
    if (segment.capture != ir::Capture::kAlways || segment.rows != rows) continue;
    ++cost.recordings;
    cost.nodes += num_launches(program, segment.first, segment.last);
  }
  return cost;
}

}  // namespace

double BucketCost::milliseconds() const {
  return (recordings * kUsPerRecording + nodes * (kCaptureUsPerNode + kInstantiateUsPerNode)) / 1e3;
}

int64_t BucketCost::bytes() const {
  return std::llround(recordings * kBytesPerRecording + nodes * kBytesPerNode);
}

BucketCost RecordingEstimate::total() const {
  BucketCost total;
  for (const auto* part : {&full, &tokens, &tails}) {
    for (const BucketCost& cost : *part) {
      total.recordings += cost.recordings;
      total.nodes += cost.nodes;
    }
  }
  return total;
}

RecordingEstimate estimate_recordings(const passes::Program& program, const Ladder& sequences,
                                      const Ladder& tokens) {
  RecordingEstimate estimate;
  const bool full = program.full_recordable();
  std::set<int64_t> token_sizes(tokens.sizes().begin(), tokens.sizes().end());
  for (const int64_t size : sequences.sizes()) {
    if (full)
      estimate.full.push_back({size, 1, num_launches(program, 0, program.graph.num_nodes())});
    // Without full recordings, uniform steps too take pieces of so many tokens.
    if (!full) token_sizes.insert(size);
    estimate.tails.push_back(pieces(program, ir::Symbol::kSequences, size));
  }
  for (const int64_t size : token_sizes)
    estimate.tokens.push_back(pieces(program, ir::Symbol::kTokens, size));
  return estimate;
}

}  // namespace encore::runtime
