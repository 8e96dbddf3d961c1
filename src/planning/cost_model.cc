#include "planning/cost_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "planning/no_memory.h"
#include "runtime/ladder.h"
#include "runtime/lower.h"

namespace encore::planning {
namespace {

// Describes a launch without its addresses. Two launches are alike if their forms are equal.
struct LaunchForm {
  const ir::Op* op = nullptr;
  std::vector<ir::Type> inputs;
  std::vector<ir::Type> outputs;
  std::string_view kernel;
  friend bool operator==(const LaunchForm&, const LaunchForm&) = default;
};
using Launches = std::vector<LaunchForm>;

// Counts the launches of a program on a device with the kernels `kernels`.
class LaunchCounter {
 public:
  LaunchCounter(const passes::Program& program, const KernelTable& kernels)
      : program_(program), kernels_(kernels), addresses_(program) {}

  [[nodiscard]] const std::vector<passes::Segment>& segments() const { return program_.segments; }

  [[nodiscard]] Launches launches(int segment, const StepKey& step) const {
    Launches launches;
    for (int i = segments()[segment].first; i < segments()[segment].last; ++i) {
      const ir::Node& node = program_.graph.nodes()[i];
      if (node.op->is_view || !runtime::step_of(program_, node, step)) continue;
      const KernelArgs args = runtime::make_args(program_, node, step, addresses_);
      for (const OpLaunch& launch : expand(kernels_, node.op->name, args)) {
        const LaunchForm form{node.op, ir::types(program_.graph, node.inputs).values(),
                              ir::types(program_.graph, node.outputs).values(),
                              launch.kernel->name};
        launches.insert(launches.end(), static_cast<size_t>(launch.num_nodes()), form);
      }
    }
    return launches;
  }
  [[nodiscard]] Launches launches(const StepKey& step) const {
    Launches all;
    for (int segment = 0; segment < std::ssize(segments()); ++segment) {
      const Launches some = launches(segment, step);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

 private:
  const passes::Program& program_;
  const KernelTable& kernels_;
  NoMemory addresses_;
};

void add_recording(BucketCost& cost, const Launches& launches, bool shares_executable) {
  const int nodes = static_cast<int>(launches.size());
  ++cost.recordings;
  cost.nodes += nodes;
  if (shares_executable) return;
  ++cost.executables;
  cost.executable_nodes += nodes;
  cost.bytes +=
      std::llround(std::max(kLeastBytesPerExecutable, kBytesPerExecutable + nodes * kBytesPerNode));
}

// Returns the cost of the pieces whose rows are `rows`, for one bucket of steps of this kind.
BucketCost pieces(const LaunchCounter& counter, ir::Symbol rows, int64_t size,
                  const StepKey& step) {
  BucketCost cost{size};
  Launches before;
  for (int i = 0; i < std::ssize(counter.segments()); ++i) {
    const passes::Segment& segment = counter.segments()[i];
    if (!segment.in_pieces || segment.rows != rows) continue;
    Launches launches = counter.launches(i, step);
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

BucketCost& BucketCost::operator+=(const BucketCost& other) {
  recordings += other.recordings;
  nodes += other.nodes;
  executables += other.executables;
  executable_nodes += other.executable_nodes;
  bytes += other.bytes;
  return *this;
}

BucketCost RecordingEstimate::total() const {
  BucketCost total;
  for (const auto* part : {&full, &mixed, &tokens, &tails}) {
    for (const BucketCost& cost : *part)
      total += cost;
  }
  return total;
}

RecordingEstimate estimate_recordings(const passes::Program& program,
                                      const runtime::Coverage& coverage,
                                      const KernelTable& kernels) {
  RecordingEstimate estimate;
  const LaunchCounter counter(program, kernels);
  std::map<int64_t, StepKey> pieces_of_tokens;
  std::map<int64_t, StepKey> pieces_of_sequences;
  for (const int64_t size : coverage.sequences.sizes()) {
    const auto shape = StepKey::uniform(size);
    if (coverage.uniform_full)
      add_recording(estimate.full.emplace_back(BucketCost{size}), counter.launches(shape), false);
    if (!coverage.uniform_pieces) continue;
    pieces_of_tokens.emplace(size, shape);
    pieces_of_sequences.emplace(size, shape);
  }
  for (const StepKey& shape :
       mixed_shapes(coverage.mixed_ladder(), coverage.tokens, program.num_drafts())) {
    if (coverage.mixed_full) {
      if (estimate.mixed.empty() || estimate.mixed.back().size != shape.tokens)
        estimate.mixed.push_back(BucketCost{shape.tokens});
      add_recording(estimate.mixed.back(), counter.launches(shape), false);
    }
    if (!coverage.mixed_pieces) continue;
    pieces_of_tokens.emplace(shape.tokens, shape);
    pieces_of_sequences.emplace(shape.sequences, shape);
  }
  // All lists of the estimate are in ascending order of their sizes.
  std::reverse(estimate.mixed.begin(), estimate.mixed.end());
  for (const auto& [size, shape] : pieces_of_tokens)
    estimate.tokens.push_back(pieces(counter, ir::Symbol::kTokens, size, shape));
  for (const auto& [size, shape] : pieces_of_sequences)
    estimate.tails.push_back(pieces(counter, ir::Symbol::kSequences, size, shape));
  return estimate;
}

}  // namespace encore::planning
