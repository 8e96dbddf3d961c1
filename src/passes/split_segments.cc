#include <algorithm>

#include "passes/least_drafts.h"
#include "passes/order.h"
#include "passes/passes.h"

namespace encore::passes {
namespace {

using ir::Symbol;

// Returns the sizes on which a launch depends: the sizes that count the rows of its operands and
// outputs. It ignores inputs for which the op's row allows any number of rows.
UsedSizes used_sizes(const ir::Graph& graph, const ir::Node& node) {
  UsedSizes used;
  for (const ir::ValueId output : node.outputs)
    used.add(graph.value(output).type);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto& dims = node.op->inputs.find(node.inputs.name(i))->dims;
    if (dims.empty() || dims[0].text != "*") used.add(graph.value(node.inputs.values()[i]).type);
  }
  return used;
}

// Collects nodes in order and cuts segments. Views launch nothing and stay where they are.
class Cutter {
 public:
  explicit Cutter(const Program& program) : program_(program) {}

  void add(int index) {
    const ir::Node& node = program_.graph.nodes()[index];
    if (!node.op->is_view) {
      const auto [tokens, sequences, logits, guesses] = used_sizes(program_.graph, node);
      const Symbol rows = tokens ? Symbol::kTokens : sequences ? Symbol::kSequences : Symbol::kNone;
      const bool in_pieces = !(tokens && sequences) && !program_.split_ops.contains(node.op->name);
      const bool rows_change =
          rows != Symbol::kNone && segment_.rows != Symbol::kNone && rows != segment_.rows;
      // Launches that only some steps need (steps that guess tokens, or steps that do not) become
      // segments of their own, so that all other steps can leave out their pieces.
      const bool must_cut = node.op->awaits_host || rows_change || guesses != guesses_ ||
                            !in_pieces || !segment_.in_pieces;
      if (has_launch_ && must_cut) cut(index);
      segment_.in_pieces = in_pieces;  // a segment outside of pieces has this launch alone
      guesses_ = guesses;
      if (segment_.rows == Symbol::kNone) segment_.rows = rows;
      has_launch_ = true;
    }
    segment_.last = index + 1;
  }

  std::vector<Segment> finish() {
    if (segment_.last > segment_.first) cut(segment_.last);
    return std::move(segments_);
  }

 private:
  void cut(int index) {
    // A segment whose operands all have fixed sizes may count either tokens or sequences.
    if (segment_.rows == Symbol::kNone) segment_.rows = Symbol::kTokens;
    segments_.push_back(segment_);
    segment_ = {.first = index, .last = index, .rows = Symbol::kNone};
    has_launch_ = false;
  }

  const Program& program_;
  std::vector<Segment> segments_;
  Segment segment_{.rows = Symbol::kNone};
  bool has_launch_ = false;
  bool guesses_ = false;  // true where the segment's launches depend on whether a step guesses
};

}  // namespace

int Program::first_awaiting_host() const {
  const auto first = std::find_if(segments.begin(), segments.end(), [&](const Segment& segment) {
    return graph.nodes()[segment.first].op->awaits_host;
  });
  return static_cast<int>(first - segments.begin());
}

void split_segments(Program& program, const ir::OpSet&) {
  program.after = dependencies(program.graph);
  program.least_drafts = least_drafts(program.graph);
  Cutter cutter(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i)
    cutter.add(i);
  program.segments = cutter.finish();
}

}  // namespace encore::passes
