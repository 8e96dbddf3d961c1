// Owns a program on a device: the memory that it reads and writes, its launches at each size, and
// its recordings. Several programs may be loaded at a time, such as those of a model and of its
// draft model. All are recorded first, against addresses, and then KV memory is mapped for all.
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

// A program with its memory, tables and recordings. Immovable, since its parts refer to each other.
// Lifetime: refers to the device, the stream and the program. Threads: one.
struct LoadedProgram final : Addresses {
  // `weight_views` is indexed by ValueId::index of the program's graph; the caller owns their
  // memory. `num_input_twins` is passed on to StepInputs. Errors: kMemory.
  LoadedProgram(Device& device, Stream& stream, const passes::Program& program,
                std::vector<TensorView> weight_views, int64_t num_input_twins = 2);
  // Waits for the work in flight, and then frees the memory that this work uses.
  ~LoadedProgram();
  // Waits for the work in flight. Returns at once on a device that has failed, where no work runs
  // any more. An owner of other memory that launches use calls this before freeing it.
  void wait_until_idle() noexcept;
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  // Allocates the workspace (scratch and counters) that launches of these steps ask for. Call it
  // once, before any step is lowered. Errors: kMemory; kUnsupported naming an op that no kernel
  // takes.
  void set_workspace(const std::vector<StepKey>& steps);
  // Sends the inputs of a step that has only padding rows.
  void send_padding(const StepKey& step);
  // Enqueues a step, or a half of one, whose inputs are on the device. REQUIRES: the recordings
  // that `mode` replays exist.
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
  // The KV states. The caller maps their memory once all programs are recorded.
  KvMemory kv;
  PersistentBuffers persistent;
  StepInputs inputs;
  Memory arena;
  // The workspace that all launches share, allocated by set_workspace(). The counters are zero
  // between launches.
  Memory scratch_memory;
  Memory counter_memory;
  Tables tables;
  Recordings recordings;
};

}  // namespace encore::runtime
