#include "runtime/addresses.h"

#include "base/error.h"

namespace encore::runtime {

TensorView node_view(const passes::Program& program, ir::ValueId id, const ir::Sizes& sizes,
                     std::byte* arena, const Addresses& others) {
  const ir::Type& type = program.graph.value(id).type;
  const passes::Placement& place = program.arena.placements[id.index];
  const ir::Value& root = program.graph.value(place.root);
  if (root.kind != ir::ValueKind::kNode) return others.view(place.root, sizes);
  const int64_t offset = program.arena.placements[place.root.index].offset;
  TensorView view(arena + offset + place.column * size_of(type.dtype), type.dtype,
                  type.resolve(sizes));
  view.row_stride = root.type.resolve(sizes).num_elements_from(1);
  return view;
}

AddressMap::AddressMap(Device& device, const passes::Program& program,
                       std::vector<TensorView> weights, const StepInputs& inputs,
                       const KvMemory& kv_memory, const PersistentBuffers& persistent)
    : program_(program),
      weights_(std::move(weights)),
      inputs_(inputs),
      kv_memory_(kv_memory),
      persistent_(persistent) {
  arena_ = device.allocate(program.arena.bytes);
}

void AddressMap::set_workspace(Device& device, Stream& stream, const Workspace& workspace) {
  scratch_ = device.allocate(workspace.scratch_bytes);
  counters_ = device.allocate(workspace.num_counters * static_cast<int64_t>(sizeof(uint32_t)));
  if (counters_.bytes() > 0) stream.fill(counters_.data(), 0, counters_.bytes());
}

TensorView AddressMap::view(ir::ValueId id, const ir::Sizes& sizes) const {
  const ir::Value& value = program_.graph.value(id);
  switch (value.kind) {
    case ir::ValueKind::kInput:
      return inputs_.device_view(id, sizes);
    case ir::ValueKind::kWeight:
      return weights_[id.index];
    case ir::ValueKind::kState:
      return kv_memory_.view(id);
    case ir::ValueKind::kPersistent:
    case ir::ValueKind::kHostVisible:
      return persistent_.view(id);
    case ir::ValueKind::kNode:
      break;
  }
  return node_view(program_, id, sizes, arena_.data(), *this);
}

void* AddressMap::scratch(int64_t bytes) const {
  ENCORE_CHECK(bytes <= scratch_.bytes(), "{} bytes of scratch", bytes);
  return scratch_.data();
}

uint32_t* AddressMap::counters(int64_t count) const {
  ENCORE_CHECK(count * 4 <= counters_.bytes(), "{} counters", count);
  return reinterpret_cast<uint32_t*>(counters_.data());
}

}  // namespace encore::runtime
