// The graph: values in SSA form, nodes in an order that respects data flow.
//
//   graph tiny {
//     input %ids: i32[T] pad -1
//     weight %embed: bf16[512,64] = "model.embed_tokens.weight"
//     state %k0: bf16[16,2,32,32]
//     state %k1: bf16[4,2,32,32] group 1
//     persistent %last_tokens: i32[8]
//     %x: bf16[T,64] = embedding(%ids, %embed, %fill)
//     %h: bf16[T,64] = rms_norm(%x, %norm) {eps=1e-05}
//     %p: bf16[T,64] = linear(%h, %w, bias=%b)   // optional operands by name
//     %y: bf16[T,64] over %h = silu(%h)          // in place: %y has %h's memory
//     output %y
//   }
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "ir/op.h"
#include "ir/weight.h"

namespace encore::ir {

using ValueId = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;

// The content of a step input's padding rows.
enum class Pad : uint8_t {
  kZero,
  kMinusOne,
  kRepeatLast,  // the last real entry again: cumulative starts
};

enum class ValueKind : uint8_t {
  kInput,        // written by the host before each step
  kWeight,       // constant after loading
  kState,        // lives across steps at a fixed address, mapped page by page: a KV cache
  kPersistent,   // lives across steps, small, zero at the start: what a step tells the next
  kHostVisible,  // as kPersistent, in memory that the host can read and write while steps run
  kNode,         // made by a node, in the arena
};
// An op may mutate these values, if it says so: values that live across steps, and inputs that the
// host writes.
constexpr bool is_mutable(ValueKind kind) {
  return kind != ValueKind::kWeight && kind != ValueKind::kNode;
}

struct Value {
  std::string name;  // without the %
  Type type;
  ValueKind kind = ValueKind::kNode;
  Pad pad = Pad::kZero;  // kInput
  WeightRecipe recipe;   // kWeight
  NodeId producer;       // kNode
  int group = 0;         // kState: those of one group have as many rows, which are used alike
};

struct Node {
  const Op* op = nullptr;
  Operands<ValueId> inputs;
  Operands<ValueId> outputs;
  Attrs attrs;
  std::vector<InPlace> in_place;  // decided by the pass restore_in_place
};

class Graph {
 public:
  explicit Graph(std::string name) : name_(std::move(name)) {}

  ValueId add_input(std::string name, Type type, Pad pad = Pad::kZero);
  ValueId add_weight(std::string name, Type type, WeightRecipe recipe);
  // A state of that group. Errors: kCompile when the group is negative.
  ValueId add_state(std::string name, Type type, int group = 0);
  // Adds a value of any other kind. If a pass writes a node itself, the pass sets the value as its
  // output.
  ValueId add_value(ValueKind kind, std::string name, Type type);

  // Appends a node; the op's row gives the output types.
  // Names: outputs take `name`, made unique; a second output `name.1`, and so on.
  // Errors: kCompile naming the op and the input that does not fit it.
  const Node& add_node(const Op& op, const Operands<ValueId>& inputs, Attrs attrs = {},
                       const std::string& name = "v");
  void add_output(ValueId value) { outputs_.push_back(value); }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Value& value(ValueId id) const { return values_[id.index]; }
  [[nodiscard]] Value& value(ValueId id) { return values_[id.index]; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id.index]; }
  [[nodiscard]] Node& node(NodeId id) { return nodes_[id.index]; }
  [[nodiscard]] int num_nodes() const { return static_cast<int>(nodes_.size()); }
  [[nodiscard]] int num_values() const { return static_cast<int>(values_.size()); }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<Value>& values() const { return values_; }
  [[nodiscard]] const std::vector<ValueId>& outputs() const { return outputs_; }
  [[nodiscard]] std::vector<ValueId> values_of_kind(ValueKind kind) const;
  [[nodiscard]] std::optional<ValueId> find_value(std::string_view name) const;
  // The nodes that read each value, in order; indexed by ValueId::index.
  [[nodiscard]] std::vector<std::vector<NodeId>> readers() const;

  // Rebuilds the whole graph from `nodes` (a legal order over the same values): values that nothing
  // reads or writes any more disappear, ids are renumbered, outputs kept. Passes delete nodes this
  // way.
  void replace_nodes(std::vector<Node> nodes);
  // Errors: kCompile when the name is taken.
  void rename(ValueId id, const std::string& name);

 private:
  ValueId add_named(Value value);

  std::string name_;
  // Names in use, each with the suffix that another value of that name tries first.
  std::unordered_map<std::string, int> names_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> outputs_;
};

// Types of a node's inputs or outputs.
Types types(const Graph& graph, const Operands<ValueId>& values);

// Is the graph well formed? Run after every pass. Checks: values defined before use and once;
// operands and types as each op's row says; no data-dependent dim; a step input varies in one symbol
// at most; mutated inputs are states (or new versions of states) that nothing reads afterwards;
// in-place choices allowed by the op's row, with no reader of the overwritten value after the node.
// Errors: kCompile naming the op and the value.
void verify(const Graph& graph);

}  // namespace encore::ir
