#include <algorithm>
#include <functional>

#include "base/rounding.h"
#include "passes/memory_map.h"
#include "passes/order.h"
#include "passes/passes.h"

namespace encore::passes {
namespace {

using ir::Graph;
using ir::ValueId;

constexpr int64_t kAlignment = 256;

// One piece of the arena: the memory of a root and of everything that shares it.
struct Buffer {
  ValueId root;
  int64_t bytes = 0;
  int64_t offset = 0;
  int first_write = 0;        // the node that makes the root; every other access comes after it
  std::vector<int> accesses;  // nodes that read or write it, through any of its values
  bool is_output = false;     // still needed when the last node has run
};

std::vector<Buffer> collect_buffers(const Program& program, const MemoryMap& memory) {
  const Graph& graph = program.graph;
  std::vector<int> by_root(graph.num_values(), -1);
  std::vector<Buffer> buffers;
  const auto buffer_of = [&](ValueId value) -> Buffer* {
    const int index = by_root[memory.region(value).root.index];
    return index < 0 ? nullptr : &buffers[index];
  };
  for (int i = 0; i < graph.num_nodes(); ++i) {
    const ir::Node& node = graph.nodes()[i];
    if (node.op->is_view) continue;
    for (const ValueId output : node.outputs) {
      if (memory.region(output).root != output) continue;
      by_root[output.index] = static_cast<int>(buffers.size());
      const int64_t bytes =
          round_up(graph.value(output).type.num_bytes(program.max_sizes), kAlignment);
      buffers.push_back({output, bytes, 0, i, {}, false});
    }
    for (const auto* values : {&node.inputs, &node.outputs}) {
      for (const ValueId value : *values) {
        if (Buffer* buffer = buffer_of(value)) buffer->accesses.push_back(i);
      }
    }
  }
  for (const ValueId output : graph.outputs()) {
    if (Buffer* buffer = buffer_of(output)) buffer->is_output = true;
  }
  for (Buffer& buffer : buffers) {
    // Latest first: the question "all before?" mostly ends at its first answer.
    auto& accesses = buffer.accesses;
    std::sort(accesses.begin(), accesses.end(), std::greater<>());
    accesses.erase(std::unique(accesses.begin(), accesses.end()), accesses.end());
  }
  return buffers;
}

// Is `a` done with before anything touches `b`?
bool dies_before(const Buffer& a, const Buffer& b, const HappensBefore& order) {
  return !a.is_output && std::all_of(a.accesses.begin(), a.accesses.end(), [&](int access) {
    return order.before(access, b.first_write);
  });
}

// Largest first, each at the lowest offset that no buffer alive at the same time covers.
int64_t share_memory(std::vector<Buffer>& buffers, const HappensBefore& order) {
  std::vector<Buffer*> by_size;
  for (Buffer& buffer : buffers)
    by_size.push_back(&buffer);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
  int64_t total = 0;
  std::vector<const Buffer*> placed;  // by offset
  for (Buffer* buffer : by_size) {
    int64_t offset = 0;
    for (const Buffer* other : placed) {
      const bool clear = other->offset >= offset + buffer->bytes ||  //
                         other->offset + other->bytes <= offset;
      if (clear || dies_before(*other, *buffer, order) || dies_before(*buffer, *other, order)) {
        continue;
      }
      offset = other->offset + other->bytes;
    }
    buffer->offset = offset;
    const auto place =
        std::upper_bound(placed.begin(), placed.end(), buffer,
                         [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
    placed.insert(place, buffer);
    total = std::max(total, offset + buffer->bytes);
  }
  return total;
}

// One behind the other.
int64_t lay_out(std::vector<Buffer>& buffers) {
  int64_t total = 0;
  for (Buffer& buffer : buffers) {
    buffer.offset = total;
    total += buffer.bytes;
  }
  return total;
}

}  // namespace

void plan_arena(Program& program, const ir::OpSet&) {
  const Graph& graph = program.graph;
  ENCORE_CHECK(static_cast<int>(program.after.size()) == graph.num_nodes(),
               "plan_arena needs the order of split_segments");
  MemoryMap memory(graph);
  for (const ir::Node& node : graph.nodes())
    memory.define(node);
  std::vector<Buffer> buffers = collect_buffers(program, memory);

  ArenaPlan plan;
  plan.bytes =
      program.reuse_memory ? share_memory(buffers, HappensBefore(program.after)) : lay_out(buffers);
  plan.placements.resize(graph.num_values());
  for (int i = 0; i < graph.num_values(); ++i) {
    const Region& region = memory.region(ValueId{i});
    plan.placements[i] = {region.root, region.column, 0};
  }
  for (const Buffer& buffer : buffers) {
    plan.unshared_bytes += buffer.bytes;
    plan.placements[buffer.root.index].offset = buffer.offset;
  }
  program.arena = std::move(plan);
}

}  // namespace encore::passes
