#include "runtime/loaded_program.h"

namespace encore::runtime {

LoadedProgram::LoadedProgram(Device& device, Stream& stream, const passes::Program& program,
                             std::vector<TensorView> weight_views, int64_t num_input_twins)
    : device(device),
      stream(stream),
      program(program),
      weights(std::move(weight_views)),
      kv(device, program.graph),
      persistent(device, stream, program.graph),
      inputs(device, program.graph, program.max_sizes, persistent, num_input_twins),
      arena(device.allocate(program.arena.bytes)),
      tables(device, program, *this),
      recordings(program, *this, tables, stream) {
  for (const ir::ValueId weight : program.graph.values_of_kind(ir::ValueKind::kWeight))
    ENCORE_CHECK(weights[weight.index].shape == program.graph.value(weight).type.resolve({}));
}

LoadedProgram::~LoadedProgram() {
  wait_until_idle();
}

void LoadedProgram::wait_until_idle() noexcept {
  try {
    stream.synchronize();
  } catch (const Error&) {  // the device has failed: nothing runs any more
  }
}

void LoadedProgram::set_workspace(const std::vector<StepKey>& steps) {
  const Workspace workspace = workspace_of(program, steps, device, *this);
  scratch_memory = device.allocate(workspace.scratch_bytes);
  counter_memory = device.allocate(workspace.num_counters * static_cast<int64_t>(sizeof(uint32_t)));
  if (counter_memory.bytes() > 0) stream.fill(counter_memory.data(), 0, counter_memory.bytes());
}

void LoadedProgram::send_padding(const StepKey& step) {
  inputs.begin({0, 0}, step.sizes());
  inputs.send(stream);
}

void LoadedProgram::enqueue(const Step& step, Mode mode, StepPart part) {
  if (mode == Mode::kFull) return replay(*recordings.full(step.key, part));
  const auto [first, last] = recordings.segments(part);
  for (int segment = first; segment < last; ++segment) {
    const bool is_piece = mode == Mode::kPiecewise && program.segments[segment].in_pieces &&
                          !tables.at(segment, step.key).empty();
    if (is_piece) {
      replay(*recordings.piece(segment, step.key));
    } else {
      tables.launch(stream, segment, segment + 1, step);
    }
  }
}

void LoadedProgram::replay(const Recording& recording) {
  ++recordings.stats().replays;
  stream.replay(recording);
}

TensorView LoadedProgram::view(ir::ValueId id, const ir::Sizes& sizes) const {
  switch (program.graph.value(id).kind) {
    case ir::ValueKind::kInput:
      return inputs.device_view(id, sizes);
    case ir::ValueKind::kWeight:
      return weights[id.index];
    case ir::ValueKind::kState:
      return kv.view(id);
    case ir::ValueKind::kPersistent:
    case ir::ValueKind::kHostVisible:
      return persistent.view(id);
    case ir::ValueKind::kNode:
      break;
  }
  return node_view(program, id, sizes, arena.data(), *this);
}

void* LoadedProgram::scratch(int64_t bytes) const {
  ENCORE_CHECK(bytes <= scratch_memory.bytes(), "{} bytes of scratch", bytes);
  return scratch_memory.data();
}

uint32_t* LoadedProgram::counters(int64_t count) const {
  ENCORE_CHECK(count * 4 <= counter_memory.bytes(), "{} counters", count);
  return reinterpret_cast<uint32_t*>(counter_memory.data());
}

}  // namespace encore::runtime
