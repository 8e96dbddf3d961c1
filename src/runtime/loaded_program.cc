#include "runtime/loaded_program.h"

namespace encore::runtime {
namespace {

// Where a step says whether its burst goes on; null for a graph without `advance`.
const int32_t* burst_goes_on(const ir::Graph& graph, const PersistentBuffers& persistent) {
  const auto clock = graph.find_value("step_clock");
  return clock ? persistent.view(*clock).as<const int32_t>() + 1 : nullptr;
}

}  // namespace

LoadedProgram::LoadedProgram(Device& device, Stream& stream, const passes::Program& program,
                             std::vector<TensorView> weights, int64_t num_input_twins)
    : device(device),
      stream(stream),
      program(program),
      kv(device, program.graph),
      persistent(device, stream, program.graph),
      inputs(device, program.graph, program.max_sizes, persistent, num_input_twins),
      addresses(device, program, weights, inputs, kv, persistent),
      tables(device, program, addresses),
      recordings(program, tables, stream, burst_goes_on(program.graph, persistent)) {
  for (const ir::ValueId weight : program.graph.values_of_kind(ir::ValueKind::kWeight))
    ENCORE_CHECK(weights[weight.index].shape == program.graph.value(weight).type.resolve({}));
}

void LoadedProgram::set_workspace(const std::vector<StepKey>& steps) {
  addresses.set_workspace(device, stream, workspace_of(program, steps, device, addresses));
}

void LoadedProgram::send_padding(const StepKey& step) {
  inputs.begin({0, 0}, step.sizes());
  inputs.send(stream);
}

void LoadedProgram::enqueue(const Step& step, Mode mode, StepPart part) {
  if (mode == Mode::kFull) return replay(*recordings.full(step.key, part));
  const auto [first, last] = recordings.segments(part);
  for (int segment = first; segment < last; ++segment) {
    if (mode == Mode::kPiecewise && program.segments[segment].in_pieces) {
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

}  // namespace encore::runtime
