// A program on a device: the memory that it reads and writes, its launches at each size, and its
// recordings. Several may be loaded beside each other, such as those of a model and of its draft:
// all are recorded first, against addresses, and then KV is mapped for all.
#pragma once

#include <vector>

#include "backend/device.h"
#include "passes/program.h"
#include "runtime/dispatch.h"
#include "runtime/kv_memory.h"
#include "runtime/lower.h"
#include "runtime/persistent_buffers.h"
#include "runtime/recordings.h"
#include "runtime/step_inputs.h"
#include "runtime/tables.h"

namespace encore::runtime {

// Immovable: its parts refer to each other. Lifetime: refers to the device, the stream and the
// program. Threads: one.
struct LoadedProgram final : Addresses {
  // `weight_views` by ValueId::index of the program's graph; the caller owns their memory.
  // `num_input_twins` as of StepInputs. Errors: kMemory.
  LoadedProgram(Device& device, Stream& stream, const passes::Program& program,
                std::vector<TensorView> weight_views, int64_t num_input_twins = 2);
  // Waits for the work in flight, which uses the memory that goes back now.
  ~LoadedProgram();
  // Waits for the work in flight; on a device that has failed there is none. Whoever owns further memory
  // that launches use waits so before it goes back.
  void wait_until_idle() noexcept;
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  // Sets aside the memory that launches of these steps ask for. Call it once, before a step is
  // lowered. Errors: kMemory; kUnsupported naming an op that no kernel takes.
  void set_workspace(const std::vector<StepKey>& steps);
  // Sends the inputs of a step without real rows.
  void send_padding(const StepKey& step);
  // Enqueues a step, or a half of one, whose inputs are on the device.
  // REQUIRES: what `mode` replays is recorded.
  void enqueue(const Step& step, Mode mode, StepPart part = StepPart::kWhole);
  void replay(const Recording& recording);

  [[nodiscard]] TensorView view(ir::ValueId id, const ir::Sizes& sizes) const override;
  [[nodiscard]] void* scratch(int64_t bytes) const override;
  [[nodiscard]] uint32_t* counters(int64_t count) const override;
  [[nodiscard]] int64_t workspace_bytes() const {
    return scratch_memory.bytes() + counter_memory.bytes();
  }

  Device& device;
  Stream& stream;
  const passes::Program& program;
  std::vector<TensorView> weights;
  // Nothing is mapped until the caller does so, once all programs are recorded.
  KvMemory kv;
  PersistentBuffers persistent;
  StepInputs inputs;
  Memory arena;
  // The workspace that all launches share, once set_workspace() has set it aside; counters are
  // zero.
  Memory scratch_memory;
  Memory counter_memory;
  Tables tables;
  Recordings recordings;
};

}  // namespace encore::runtime
