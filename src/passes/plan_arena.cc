#include <algorithm>
#include <functional>
#include <ranges>

#include "base/rounding.h"
#include "passes/memory_map.h"
#include "passes/order.h"
#include "passes/passes.h"

namespace encore::passes {
namespace {

using ir::Graph;
using ir::ValueId;

constexpr int64_t kAlignment = 256;

// A buffer of the arena: the memory of a root value and of every value that shares it.
struct Buffer {
  ValueId root;
  int64_t bytes = 0;
  int64_t offset = 0;
  // The node that makes the root. Every other access to the buffer comes after it.
  int first_write = 0;
  // The nodes that read or write the buffer through any of its values, in ascending order.
  std::vector<int> accesses;
  bool is_output = false;  // the buffer is still needed when the last node has run
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
  return buffers;
}

// Returns whether all accesses to `a` have ended before anything touches `b`. Checks the latest
// access first, because it mostly decides.
bool dies_before(const Buffer& a, const Buffer& b, const HappensBefore& order) {
  return !a.is_output && std::ranges::all_of(a.accesses | std::views::reverse, [&](int access) {
    return order.before(access, b.first_write);
  });
}

// Places the largest buffer first, and each buffer at the lowest offset where it overlaps only
// buffers with which it may share memory. Returns the bytes of the arena.
template <typename CanShare>
int64_t place(std::vector<Buffer>& buffers, const CanShare& can_share) {
  std::vector<Buffer*> by_size;
  for (Buffer& buffer : buffers)
    by_size.push_back(&buffer);
  std::ranges::stable_sort(by_size, std::greater(), &Buffer::bytes);
  int64_t total = 0;
  std::vector<const Buffer*> placed;  // by offset
  for (Buffer* buffer : by_size) {
    int64_t offset = 0;
    for (const Buffer* other : placed) {
      const bool clear = other->offset >= offset + buffer->bytes ||  //
                         other->offset + other->bytes <= offset;
      if (clear || can_share(*other, *buffer)) continue;
      offset = other->offset + other->bytes;
    }
    buffer->offset = offset;
    placed.insert(std::ranges::upper_bound(placed, buffer->offset, {}, &Buffer::offset), buffer);
    total = std::max(total, offset + buffer->bytes);
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

  const HappensBefore order(program.after);
  const auto can_share = [&](const Buffer& a, const Buffer& b) {
    return program.reuse_memory && (dies_before(a, b, order) || dies_before(b, a, order));
  };
  ArenaPlan plan;
  plan.bytes = place(buffers, can_share);
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
