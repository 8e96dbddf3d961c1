// Checks memory plans of random graphs in two ways. No two buffers that may be alive at the same
// time share a byte. And when the nodes run in random legal orders, none overwrites memory that is
// still to be read.
#include <algorithm>
#include <map>
#include <random>

#include "ops/ops.h"
#include "passes/memory_map.h"
#include "passes/testing/text_in_text_out.h"

namespace encore::passes {
namespace {

using ir::Node;
using ir::ValueId;
using ir::ValueKind;

// `mix` takes any values and gives outputs of the given widths. `same` gives one more value of its
// first input's type, which may be written over either operand. `poke` makes a new version of a
// state. `split` makes views.
const ir::OpSet& random_ops() {
  static const ir::OpSet kOps = [] {
    ir::OpSet ops;
    ops.add({.name = "mix",
             .inputs = "a any[...], b any[...], c? any[...]",
             .infer = [](const ir::Types&, const ir::Attrs& attrs, ir::Types& out) {
               for (const int64_t width : attrs.get_ints("widths"))
                 out.add("y", {DType::kF32, {ir::Dim::tokens(), width}});
             }});
    ops.add({.name = "same",
             .inputs = "x any[...], other? any[...]",
             .outputs = "y = x",
             .may_reuse = {{"y", "x"}, {"y", "other"}}});
    ops.add({.name = "poke", .inputs = "state any[...], x any[...]", .outputs = "state"});
    ops.add(*ops::standard().find("split"));
    return ops;
  }();
  return kOps;
}

class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed), graph_("random") {
    values_ = {graph_.add_input("x", {DType::kF32, {ir::Dim::tokens(), 128}})};
    state_ = graph_.add_value(ir::ValueKind::kState, "s", {DType::kF32, {1, 64}});
  }

  ir::Graph build(int num_nodes) {
    while (graph_.num_nodes() < num_nodes)
      add_node();
    for (int i = 0; i < 2; ++i)
      graph_.add_output(pick());
    return std::move(graph_);
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  // Picks mostly recent values, so that nothing reads older values any more and their memory may be
  // reused.
  ValueId pick() {
    const int reach = std::min(static_cast<int>(values_.size()), below(4) == 0 ? 1000 : 6);
    return values_[values_.size() - 1 - below(reach)];
  }
  void add(const std::string& op, const ir::Operands<ValueId>& inputs, ir::Attrs attrs = {}) {
    const auto& outputs = graph_.add_node(*random_ops().find(op), inputs, std::move(attrs)).outputs;
    values_.insert(values_.end(), outputs.begin(), outputs.end());
  }
  void add_node() {
    const int kind = below(10);
    const ValueId a = pick();
    const int64_t width = graph_.value(a).type.dims[1].value;
    if (kind < 3) {
      std::vector<int64_t> widths(1 + below(2));
      for (int64_t& w : widths)
        w = 64 * (1 + below(4));
      ir::Operands<ValueId> inputs{{"a", a}, {"b", pick()}};
      if (below(4) == 0) inputs.add("c", state_);
      add("mix", inputs, {{"widths", widths}});
    } else if (kind < 8) {
      ir::Operands<ValueId> inputs{{"x", a}};
      if (below(2) == 0) inputs.add("other", pick());
      add("same", inputs);
    } else if (kind == 8 && width >= 32) {
      const int64_t left = 16 * (1 + below(static_cast<int>(width / 16) - 1));
      add("split", {a}, {{"sizes", std::vector<int64_t>{left, width - left}}});
    } else if (kind == 9) {
      state_ = graph_.add_node(*random_ops().find("poke"), {state_, a}).outputs["state"];
    }
  }

  std::mt19937_64 random_;
  ir::Graph graph_;
  std::vector<ValueId> values_;
  ValueId state_;
};

Program planned(uint64_t seed, int64_t tokens) {
  Program program(RandomGraph(seed).build(60));
  program.max_sizes = {tokens, 1};
  restore_in_place(program, random_ops());
  ir::verify(program.graph);
  split_segments(program, random_ops());
  plan_arena(program, random_ops());
  return program;
}

// Returns whether node `later` waits for node `earlier`, directly or through other nodes. It does
// not use the pass's bitset (HappensBefore), so that the test does not share its errors.
bool waits(const Program& program, int later, int earlier) {
  for (const int direct : program.after[later]) {
    if (direct == earlier || (direct > earlier && waits(program, direct, earlier))) return true;
  }
  return false;
}

// Returns the launches that read or write a root's memory.
std::vector<int> accesses(const Program& program, ValueId root) {
  std::vector<int> found;
  for (int i = 0; i < program.graph.num_nodes(); ++i) {
    const Node& node = program.graph.nodes()[i];
    if (node.op->is_view) continue;
    for (const auto* values : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *values) {
        if (program.arena.placements[id.index].root == root) found.push_back(i);
      }
    }
  }
  return found;
}

bool is_done_before(const Program& program, ValueId a, ValueId b) {
  for (const ValueId output : program.graph.outputs()) {
    if (program.arena.placements[output.index].root == a) return false;
  }
  const int first_write = program.graph.value(b).producer.index;
  for (const int access : accesses(program, a)) {
    if (!waits(program, first_write, access)) return false;
  }
  return true;
}

TEST(PlanArenaOfRandomGraphs, SharesBytesOnlyBetweenBuffersThatAreOrdered) {
  int num_shared = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Program program = planned(seed, 5);
    std::vector<ValueId> roots;
    for (const ValueId id : program.graph.values_of_kind(ValueKind::kNode)) {
      if (program.arena.placements[id.index].root == id) roots.push_back(id);
    }
    const auto begin = [&](ValueId id) { return program.arena.placements[id.index].offset; };
    const auto end = [&](ValueId id) {
      return begin(id) + program.graph.value(id).type.num_bytes(program.max_sizes);
    };
    for (const ValueId a : roots) {
      EXPECT_LE(end(a), program.arena.bytes);
      for (const ValueId b : roots) {
        if (!(a < b) || end(a) <= begin(b) || end(b) <= begin(a)) continue;
        ++num_shared;
        EXPECT_TRUE(is_done_before(program, a, b) || is_done_before(program, b, a))
            << "seed " << seed << ": %" << program.graph.value(a).name << " and %"
            << program.graph.value(b).name << " share memory\n"
            << listing::print(program);
      }
    }
  }
  EXPECT_GT(num_shared, 100);  // otherwise the test would check nothing
}

// Simulated memory, in which every element remembers who wrote it.
class Simulation {
 public:
  explicit Simulation(const Program& program)
      : program_(program), arena_(program.arena.bytes / 4), contents_(program.graph.num_values()) {
    for (int i = 0; i < program.graph.num_values(); ++i) {
      if (program.graph.values()[i].kind != ValueKind::kNode) write(ValueId{i});
    }
  }

  // Runs all launches in a random order that Program::after allows. Returns whether each launch
  // read the values that it should read.
  bool run(uint64_t seed) {
    std::mt19937_64 random(seed);
    const int num_nodes = program_.graph.num_nodes();
    std::vector<bool> done(num_nodes);
    define_views();
    for (int left = num_nodes; left > 0; --left) {
      std::vector<int> ready;
      for (int i = 0; i < num_nodes; ++i) {
        if (!done[i] && can_run(done, i)) ready.push_back(i);
      }
      const int node = ready[random() % ready.size()];
      if (!run_node(node)) return false;
      done[node] = true;
    }
    for (const ValueId output : program_.graph.outputs()) {
      if (!holds(output)) return false;
    }
    return true;
  }

 private:
  [[nodiscard]] bool can_run(const std::vector<bool>& done, int node) const {
    const auto& after = program_.after[node];
    return std::all_of(after.begin(), after.end(), [&](int earlier) { return done[earlier]; });
  }
  // Computes what each value should hold. A view holds a part of the value that it shows, and any
  // other value holds numbers that no other value has.
  void define_views() {
    for (const Node& node : program_.graph.nodes()) {
      size_t column = 0;
      for (const ValueId output : node.outputs) {
        auto& content = contents_[output.index];
        content = fresh(output);
        if (!node.op->is_view) continue;
        const auto& whole = contents_[node.inputs["x"].index];
        std::copy_n(whole.begin() + column, content.size(), content.begin());
        column += content.size();
      }
    }
  }
  [[nodiscard]] std::vector<int> fresh(ValueId id) const {
    std::vector<int> content(program_.graph.value(id).type.dims[1].value);
    for (size_t i = 0; i < content.size(); ++i)
      content[i] = id.index * 1000 + static_cast<int>(i);
    return content;
  }
  // Returns the memory of a value. It is one row, because the sizes of the test are those of one
  // token.
  std::vector<int>::iterator memory(ValueId id) {
    const Placement& place = program_.arena.placements[id.index];
    if (program_.graph.value(place.root).kind == ValueKind::kNode) {
      return arena_.begin() + program_.arena.placements[place.root.index].offset / 4 + place.column;
    }
    auto& outside = outside_[place.root.index];
    outside.resize(program_.graph.value(place.root).type.dims[1].value);
    return outside.begin() + place.column;
  }
  void write(ValueId id) {
    if (contents_[id.index].empty()) contents_[id.index] = fresh(id);
    std::copy(contents_[id.index].begin(), contents_[id.index].end(), memory(id));
  }
  bool holds(ValueId id) {
    return std::equal(contents_[id.index].begin(), contents_[id.index].end(), memory(id));
  }
  bool run_node(int index) {
    const Node& node = program_.graph.nodes()[index];
    if (node.op->is_view) return true;
    for (const ValueId input : node.inputs) {
      if (!holds(input)) return false;
    }
    for (const ValueId output : node.outputs)
      write(output);
    return true;
  }

  const Program& program_;
  std::vector<int> arena_;
  std::map<int, std::vector<int>> outside_;  // the memory of states and step inputs, by root
  std::vector<std::vector<int>> contents_;   // by ValueId::index
};

TEST(PlanArenaOfRandomGraphs, NeverClobbersALiveValueInAnyLegalOrder) {
  int num_in_place = 0;
  for (uint64_t seed = 100; seed < 160; ++seed) {
    const Program program = planned(seed, 1);
    for (const Node& node : program.graph.nodes()) {
      num_in_place += static_cast<int>(node.in_place.size() - node.op->mutations().size());
    }
    for (uint64_t order = 0; order < 8; ++order) {
      ASSERT_TRUE(Simulation(program).run(order)) << "seed " << seed << "\n"
                                                  << listing::print(program);
    }
  }
  EXPECT_GT(num_in_place, 200);
}

}  // namespace
}  // namespace encore::passes
