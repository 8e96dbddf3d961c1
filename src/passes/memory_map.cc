#include "passes/memory_map.h"

#include <algorithm>
#include <limits>

namespace encore::passes {

using ir::InPlace;
using ir::Node;
using ir::ValueId;
using ir::ValueKind;

namespace {

// Returns the number of columns of a value's row in its buffer. A row whose length varies has no
// known end: it overlaps every column behind it in the buffer.
int64_t row_width(const ir::Type& type) {
  int64_t width = 1;
  for (size_t i = 1; i < type.dims.size(); ++i) {
    if (!type.dims[i].is_number()) return std::numeric_limits<int64_t>::max() / 2;
    width *= type.dims[i].value;
  }
  return width;
}

bool contains(const Region& outer, const Region& inner) {
  return outer.root == inner.root && outer.column <= inner.column &&
         inner.column + inner.width <= outer.column + outer.width;
}

}  // namespace

bool overlap(const Region& a, const Region& b) {
  return a.root == b.root && a.column < b.column + b.width && b.column < a.column + a.width;
}

std::vector<InPlace> mutations_of(const Node& node) {
  std::vector<InPlace> places = node.op->mutations();
  std::erase_if(places, [&](const InPlace& place) {
    // The operand is optional, and the node lacks it.
    return node.inputs.find(place.input) == nullptr;
  });
  return places;
}

std::vector<InPlace> writes_over(const Node& node) {
  std::vector<InPlace> places = mutations_of(node);
  for (const InPlace& place : node.in_place) {
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  return places;
}

std::optional<int> writer(const ir::Graph& graph, ValueId value) {
  while (graph.value(value).kind == ValueKind::kNode) {
    const int producer = graph.value(value).producer.index;
    const Node& node = graph.nodes()[producer];
    if (!node.op->is_view) return producer;
    value = *node.inputs.begin();
  }
  return std::nullopt;
}

MemoryMap::MemoryMap(const ir::Graph& graph)
    : graph_(graph), regions_(graph.num_values()), live_(graph.num_values()) {
  for (int i = 0; i < graph.num_values(); ++i) {
    const ValueId id{i};
    if (graph.value(id).kind != ValueKind::kNode) add(id, {id, 0, row_width(graph.value(id).type)});
  }
}

void MemoryMap::add(ValueId value, const Region& region) {
  regions_[value.index] = region;
  live_[region.root.index].push_back(value);
}

void MemoryMap::overwrite(ValueId output, const Region& region) {
  std::erase_if(live_[region.root.index],
                [&](ValueId id) { return contains(region, regions_[id.index]); });
  add(output, region);
}

void MemoryMap::define(const Node& node) {
  if (node.op->is_view) {
    Region region = regions_[node.inputs.begin()->index];
    for (const ValueId output : node.outputs) {
      region.width = row_width(graph_.value(output).type);
      add(output, region);
      region.column += region.width;
    }
    return;
  }
  const auto places = writes_over(node);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs.values()[i];
    const auto over = std::ranges::find(places, node.outputs.name(i), &InPlace::output);
    if (over == places.end()) {
      add(output, {output, 0, row_width(graph_.value(output).type)});
    } else {
      const Region region = regions_[node.inputs[over->input].index];
      overwrite(output, region);
    }
  }
}

std::vector<ValueId> MemoryMap::living_in(const Region& region) const {
  std::vector<ValueId> found;
  for (const ValueId id : live_[region.root.index]) {
    if (overlap(region, regions_[id.index])) found.push_back(id);
  }
  return found;
}

}  // namespace encore::passes
