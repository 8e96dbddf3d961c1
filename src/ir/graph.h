// Defines the graph: values in SSA form, and nodes in an order that respects data flow. An example
// of its text form:
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

// Says what the padding rows of a step input contain.
enum class Pad : uint8_t {
  kZero,
  kMinusOne,
  kRepeatLast,  // repeats the last real entry, for cumulative starts
};

enum class ValueKind : uint8_t {
  kInput,        // written by the host before each step
  kWeight,       // constant after loading
  kState,        // lives across steps at a fixed address, mapped page by page: a KV cache
  kPersistent,   // lives across steps, small, zero at the start: a step leaves it for the next
  kHostVisible,  // like kPersistent, but the host can read and write it while steps run
  kNode,         // made by a node, in the arena
};
// Returns whether an op may mutate values of this kind, if the op declares that. These are values
// that live across steps, and inputs that the host writes.
constexpr bool is_mutable(ValueKind kind) {
  return kind != ValueKind::kWeight && kind != ValueKind::kNode;
}

struct Value {
  std::string name;  // without the leading %
  Type type;
  ValueKind kind = ValueKind::kNode;
  Pad pad = Pad::kZero;  // only for kInput: content of the padding rows
  WeightRecipe recipe;   // only for kWeight: how the weight is made
  NodeId producer;       // only for kNode: the node that makes the value
  int group = 0;         // kState: states of one group have equally many rows, with the same pages
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
  // Adds a state to the group `group`. Errors: kCompile when the group is negative.
  ValueId add_state(std::string name, Type type, int group = 0);
  // Adds a value of any other kind. A pass that builds a node by hand makes the value that node's
  // output.
  ValueId add_value(ValueKind kind, std::string name, Type type);

  // Appends a node. The op's row gives the types of its outputs.
  // Names: the first output takes `name`, made unique; a second output takes `name.1`, and so on.
  // Errors: kCompile, naming the op and the input that does not fit it.
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
  // Returns, for each value, the nodes that read it, in the graph's order. The index is
  // ValueId::index.
  [[nodiscard]] std::vector<std::vector<NodeId>> readers() const;

  // Rebuilds the whole graph from `nodes`, which is a legal order over the same values. Values that
  // no node reads or writes disappear, ids are renumbered, and the outputs are kept. Passes delete
  // nodes this way.
  void replace_nodes(std::vector<Node> nodes);
  // Renames a value. Errors: kCompile when the name is taken.
  void rename(ValueId id, const std::string& name);

 private:
  ValueId add_named(Value value);

  std::string name_;
  // Maps each name in use to the suffix that the next value of the same name tries first.
  std::unordered_map<std::string, int> names_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> outputs_;
};

// Returns the types of a node's inputs or outputs.
Types types(const Graph& graph, const Operands<ValueId>& values);

// Checks that the graph is well formed; runs after every pass. It checks that
// - each value is defined once, before its uses;
// - operands and types are as each op's row says;
// - no dim depends on data, and a step input varies in one symbol at most;
// - mutated inputs are states (or new versions of states) that no later node reads;
// - the op's row allows each in-place choice, and no later node reads the overwritten value.
// Errors: kCompile, naming the op and the value.
void verify(const Graph& graph);

}  // namespace encore::ir
