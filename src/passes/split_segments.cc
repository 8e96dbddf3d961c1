#include <algorithm>

#include "passes/passes.h"

namespace encore::passes {
namespace {

using ir::Capture;
using ir::Graph;
using ir::Symbol;

// What the rows of a launch count; for one that writes states alone, what it reads.
Symbol rows_of(const Graph& graph, const ir::Node& node) {
  for (const auto* values : {&node.outputs, &node.inputs}) {
    for (const ir::ValueId id : *values) {
      const Symbol rows = graph.value(id).type.rows();
      if (rows == Symbol::kTokens || rows == Symbol::kSequences) return rows;
    }
  }
  return Symbol::kNone;
}

// Collects nodes in order; views launch nothing and stay where they are.
class Cutter {
 public:
  explicit Cutter(const Program& program) : program_(program), graph_(program.graph) {}

  void add(int index) {
    const ir::Node& node = graph_.nodes()[index];
    if (!node.op->is_view) {
      const Symbol rows = rows_of(graph_, node);
      const Capture capture = capture_of(*node.op);
      if (has_launch_ && (node.op->awaits_host || must_cut(capture, rows))) cut(index);
      segment_.capture = capture;  // whatever is not kAlways is the only launch
      if (rows_ == Symbol::kNone) rows_ = rows;
      has_launch_ = true;
    }
    segment_.last = index + 1;
  }

  std::vector<Segment> finish() {
    if (segment_.last > segment_.first) cut(segment_.last);
    return std::move(segments_);
  }

 private:
  // A full recording takes a split op; pieces do not.
  [[nodiscard]] Capture capture_of(const ir::Op& op) const {
    return program_.split_ops.contains(op.name) ? std::min(op.capture, Capture::kFull) : op.capture;
  }
  [[nodiscard]] bool must_cut(Capture capture, Symbol rows) const {
    const bool rows_change = rows != Symbol::kNone && rows_ != Symbol::kNone && rows != rows_;
    return rows_change || capture != Capture::kAlways || segment_.capture != Capture::kAlways;
  }
  void cut(int index) {
    // A launch whose operands all have fixed sizes goes with either.
    segment_.rows = rows_ == Symbol::kNone ? Symbol::kTokens : rows_;
    segments_.push_back(segment_);
    segment_ = {index, index};
    rows_ = Symbol::kNone;
    has_launch_ = false;
  }

  const Program& program_;
  const Graph& graph_;
  std::vector<Segment> segments_;
  Segment segment_;
  Symbol rows_ = Symbol::kNone;
  bool has_launch_ = false;
};

}  // namespace

void split_segments(Program& program, const ir::OpSet&) {
  program.after = dependencies(program.graph);
  Cutter cutter(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i)
    cutter.add(i);
  program.segments = cutter.finish();
}

}  // namespace encore::passes
