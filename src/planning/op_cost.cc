#include "planning/op_cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace encore::planning {
namespace {

using ir::Sizes;
using ir::Type;
using ir::Types;

OpCost cost_operands(const Types& in, const Types& out, const Sizes& sizes) {
  OpCost cost;
  for (const Types* operands : {&in, &out}) {
    for (const Type& type : *operands)
      cost.bytes += type.num_bytes(sizes);
  }
  return cost;
}

// Lists the operands of expert_mlp that are read for the chosen experts only.
const std::initializer_list<std::string_view> kExpertWeights = {"gate_up", "gate_up_scale", "down",
                                                                "down_scale"};

// Returns the cost of a linear without its adapters, because only a step knows which adapter slots
// its rows read.
OpCost cost_linear(const Types& in, const Types& out, const Sizes& sizes) {
  OpCost cost = cost_operands(in.without({"lora_a", "lora_b", "adapters"}), out, sizes);
  cost.flops = 2 * in["x"].dims[0].resolve(sizes) * in["weight"].resolve({}).num_elements();
  return cost;
}

// Returns the cost of an embedding, which reads only the rows that are looked up.
OpCost cost_embedding(const Types& in, const Types& out, const Sizes& sizes) {
  return {2 * out["x"].num_bytes(sizes) + in["ids"].num_bytes(sizes), 0};
}

// Returns the expected share of all experts that some row chooses, where each of a row's X is as
// likely as any other: 1 - (1 - X/E)^R.
double expected_experts(const Types& in, const Sizes& sizes) {
  const auto num_experts = static_cast<double>(in["gate_up"].dims[0].value);
  const auto top_k = static_cast<double>(in["experts"].dims[1].value);
  const auto rows = static_cast<double>(in["x"].dims[0].resolve(sizes));
  return 1 - std::pow(1 - std::min(1.0, top_k / num_experts), rows);
}

OpCost cost_expert_mlp(const Types& in, const Types& out, const Sizes& sizes) {
  int64_t weights = 0;  // bytes of the codes and their scales
  for (const std::string_view name : kExpertWeights) {
    if (const Type* operand = in.find(name)) weights += operand->num_bytes({});
  }
  const auto read = std::llround(expected_experts(in, sizes) * static_cast<double>(weights));
  const Type& down = in["down"];
  const int64_t pairs = in["experts"].resolve(sizes).num_elements();
  return {cost_operands(in.without(kExpertWeights), out, sizes).bytes + read,
          2 * pairs * 3 * down.dims[1].value * down.dims[2].value};
}

OpCost cost_gather_rows(const Types& in, const Types& out, const Sizes& sizes) {
  int64_t bytes = in["rows"].num_bytes(sizes);
  for (const Type& rows : out)
    bytes += 2 * rows.num_bytes(sizes);
  return {bytes, 0};
}

// Returns the bytes to read k and v, and to write them in the cache's dtype. The other bytes of the
// cache do not count.
int64_t kv_write_bytes(const Types& in, const Sizes& sizes) {
  const Type& k = in["k"];
  return 2 * (k.num_bytes(sizes) + k.resolve(sizes).num_elements() * size_of(in["k_cache"].dtype));
}

OpCost cost_kv_write(const Types& in, const Types&, const Sizes& sizes) {
  return {kv_write_bytes(in, sizes) + in["slots"].num_bytes(sizes), 0};
}

OpCost cost_attention(const Types& in, const Types&, const Sizes& sizes) {
  const int64_t written = in.find("k") == nullptr ? 0 : kv_write_bytes(in, sizes);
  return {2 * in["q"].num_bytes(sizes) + written, 0};
}

// Returns the cost of ops that look up drafts. The page table does not count, because few of its
// entries are read. A search for drafts also reads the tokens of each sequence, which are few
// compared to its K and V.
OpCost cost_drafts(const Types& in, const Types& out, const Sizes& sizes) {
  return cost_operands(in.without({"page_table", "token_cache"}), out.without({"token_cache"}),
                       sizes);
}

// Returns the cost of gathering the rank's own columns only, because only a step knows how many
// rows need the columns of other ranks.
OpCost cost_gather_logits(const Types& in, const Types&, const Sizes& sizes) {
  return {2 * in["x"].num_bytes(sizes) + in["kv_lens"].num_bytes(sizes), 0};
}

// Returns the cost of `sample`, without logits where rows merge candidates.
OpCost cost_sample(const Types& in, const Types& out, const Sizes& sizes) {
  if (in.find("candidates") == nullptr) return cost_operands(in, out, sizes);
  return cost_operands(in.without({"logits", "adjusted", "token_counts"}),
                       out.without({"token_counts"}), sizes);
}

constexpr struct {
  std::string_view op;
  OpCost (*cost)(const Types& in, const Types& out, const Sizes& sizes);
} kCosts[] = {
    {"embedding", cost_embedding},         {"linear", cost_linear},
    {"expert_mlp", cost_expert_mlp},       {"fused_linear", cost_linear},
    {"gather_rows", cost_gather_rows},     {"kv_write", cost_kv_write},
    {"rope_kv_write", cost_attention},     {"attention", cost_attention},
    {"fused_attention", cost_attention},   {"lookup_drafts", cost_drafts},
    {"extend_drafts", cost_drafts},        {"fused_route", cost_linear},
    {"gather_logits", cost_gather_logits}, {"sample", cost_sample},
};

}  // namespace

namespace {

// Returns whether a step of these sizes skips the node, because it has no rows.
bool is_left_out(const ir::Graph& graph, const ir::Node& node, const Sizes& sizes) {
  return std::ranges::any_of(node.inputs, [&](ir::ValueId input) {
    const ir::Type& type = graph.value(input).type;
    const bool varies =
        type.rows() == ir::Symbol::kGuessing || type.rows() == ir::Symbol::kUnguessed;
    return varies && type.dims[0].resolve(sizes) == 0;
  });
}

}  // namespace

double weight_share(const ir::Graph& graph, const ir::Node& node, const Sizes& sizes) {
  if (is_left_out(graph, node, sizes)) return 0;
  if (node.op->name == "embedding") return 0;  // only a few rows are read
  if (node.op->name == "expert_mlp") return expected_experts(types(graph, node.inputs), sizes);
  return 1;
}

OpCost op_cost(const ir::Graph& graph, const ir::Node& node, const Sizes& sizes) {
  if (node.op->is_view || is_left_out(graph, node, sizes)) return {};
  const auto row = std::ranges::find(kCosts, node.op->name, [](const auto& row) { return row.op; });
  const auto cost = row == std::end(kCosts) ? cost_operands : row->cost;
  const Types in = types(graph, node.inputs);
  const Types out = types(graph, node.outputs);
  if (node.attrs.find("columns") == nullptr) return cost(in, out, sizes);
  // The op reads only the rank's columns, of the adjusted logits if there are any.
  OpCost own = cost(in.without({"logits", "adjusted"}), out, sizes);
  const Type& logits = in["logits"];
  own.bytes += logits.num_bytes(sizes) / logits.dims[1].value * node.attrs.get_int("columns");
  return own;
}

}  // namespace encore::planning
