#include <algorithm>

#include "passes/order.h"
#include "passes/passes.h"

namespace encore::passes {
namespace {

using ir::Symbol;

// What a launch depends on: the rows of its operands, but for those that its op knows nothing of.
struct Rows {
  bool tokens = false;
  bool sequences = false;
};

Rows rows_of(const ir::Graph& graph, const ir::Node& node) {
  Rows found;
  const auto note = [&](ir::ValueId id) {
    const Symbol rows = graph.value(id).type.rows();
    found.tokens |= rows == Symbol::kTokens;
    found.sequences |= rows == Symbol::kSequences;
  };
  std::ranges::for_each(node.outputs, note);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const std::vector<std::string_view>& dims = node.op->inputs.find(node.inputs.name(i))->dims;
    if (dims.empty() || dims[0] != "*") note(node.inputs.values()[i]);
  }
  return found;
}

// Collects nodes in order; views launch nothing and stay where they are.
class Cutter {
 public:
  explicit Cutter(const Program& program) : program_(program) {}

  void add(int index) {
    const ir::Node& node = program_.graph.nodes()[index];
    if (!node.op->is_view) {
      const auto [tokens, sequences] = rows_of(program_.graph, node);
      const Symbol rows = tokens ? Symbol::kTokens : sequences ? Symbol::kSequences : Symbol::kNone;
      const bool in_pieces = !(tokens && sequences) && !program_.split_ops.contains(node.op->name);
      const bool rows_change = rows != Symbol::kNone && rows_ != Symbol::kNone && rows != rows_;
      const bool must_cut =
          node.op->awaits_host || rows_change || !in_pieces || !segment_.in_pieces;
      if (has_launch_ && must_cut) cut(index);
      segment_.in_pieces = in_pieces;  // what is not is the only launch
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
  void cut(int index) {
    // A launch whose operands all have fixed sizes goes with either.
    segment_.rows = rows_ == Symbol::kNone ? Symbol::kTokens : rows_;
    segments_.push_back(segment_);
    segment_ = {index, index};
    rows_ = Symbol::kNone;
    has_launch_ = false;
  }

  const Program& program_;
  std::vector<Segment> segments_;
  Segment segment_;
  Symbol rows_ = Symbol::kNone;
  bool has_launch_ = false;
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
  Cutter cutter(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i)
    cutter.add(i);
  program.segments = cutter.finish();
}

}  // namespace encore::passes
