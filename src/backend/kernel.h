// Kernels: how a device runs an op. One table per device; fusion, dispatch and choice by shape
// happen before, in passes and in lowering, so a bound launch contains no decision.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/step.h"
#include "base/tensor.h"
#include "ir/op.h"

namespace encore {

class Device;
class Stream;

// Memory a launch may scribble on. Lifetime: until the launch has run; launches with a workspace
// are ordered one after the other.
struct Workspace {
  int64_t scratch_bytes = 0;
  int64_t num_counters = 0;  // u32, zero before the launch; the kernel leaves them zero
};

using Views = ir::Operands<TensorView>;

// Everything that is fixed when a launch is lowered: addresses, shapes, attributes.
struct KernelArgs {
  Views inputs;
  Views outputs;  // in-place outputs have their input's address
  ir::Attrs attrs;
  StepKey step;  // as launched
  // A row's bits must depend on neither the number of rows nor their order: a kernel that cannot
  // promise it does not accept.
  bool batch_invariant = false;
  // The exchange buffer that a collective uses (backend/push.h): those that run one after the other have
  // different ones.
  int exchange_buffer = 0;
  void* scratch = nullptr;
  uint32_t* counters = nullptr;
};

// Names the launch of a collective for messages: "op 'all_reduce' of model.layers.8.o_proj (bf16[4,4096])".
std::string meeting_text(std::string_view op, const KernelArgs& args);

// Enqueues the launch on a stream. Only a kernel whose `reads_lengths` holds may look at `lengths`.
// Capture: yes, but for those.
using BoundLaunch = std::function<void(Stream& stream, const StepLengths& lengths)>;

// One row of a device's kernel table. The first row of an op that takes the launch is chosen.
struct Kernel {
  std::string_view op;    // "rms_norm"
  std::string_view name;  // "rms_norm.row_per_warp", as shown by inspect and profilers
  bool (*accepts)(const KernelArgs& args) = nullptr;  // null: everything the shape function allows
  Workspace (*workspace)(const KernelArgs& args) = nullptr;  // null: none
  // Choice of algorithm and everything else worth doing once; may be slow, never inside a
  // recording. Errors: kCompile naming the kernel, when the outputs are not what this kernel
  // computes.
  BoundLaunch (*bind)(Device& device, const KernelArgs& args) = nullptr;
  // The optional operands that it knows. A launch that has others goes to another kernel.
  std::array<std::string_view, 8> optional = {};
  // Says for people why a decode step that has to take this kernel is slow; empty if it is not.
  std::string_view slow = {};
  // Does its launch follow StepLengths, which no recording knows? null: no.
  bool (*reads_lengths)(const KernelArgs& args) = nullptr;
  // How many nodes of a recording a launch of it becomes. null: one.
  int (*num_nodes)(const KernelArgs& args) = nullptr;
  // May it run a launch of `op`?
  [[nodiscard]] bool takes(std::string_view op, const KernelArgs& args) const;
};

// The kernels of a device, in order of preference per op. Rows from outside the library can be added
// in front, before tables are made: for its ops, and for others.
class KernelTable {
 public:
  KernelTable() = default;
  explicit KernelTable(std::span<const Kernel> rows) : rows_(rows.begin(), rows.end()) {}

  void add_first(const Kernel& kernel) { rows_.insert(rows_.begin(), kernel); }
  // Errors: kUnsupported naming the op and its operands when no row takes the launch.
  [[nodiscard]] const Kernel& choose(std::string_view op, const KernelArgs& args) const;
  [[nodiscard]] std::span<const Kernel> rows() const { return rows_; }

 private:
  std::vector<Kernel> rows_;
};

}  // namespace encore
