// A kernel says how a device runs an op. Each device has one table of kernels. Passes and lowering
// decide about fusion and choose kernels by shape beforehand, so a bound launch makes no decisions.
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

// The temporary memory that a launch needs and may overwrite. All launches share the same memory,
// so launches that need some run one after the other. Lifetime: until the launch has run.
struct Workspace {
  int64_t scratch_bytes = 0;
  int64_t num_counters = 0;  // u32, zero before the launch; the kernel leaves them zero
};

using Views = ir::Operands<TensorView>;

// The arguments of a launch that are fixed when it is lowered: addresses, shapes, attributes.
struct KernelArgs {
  Views inputs;
  Views outputs;  // in-place outputs have their input's address
  ir::Attrs attrs;
  StepKey step;  // as launched
  // Requires that the bits of a row depend neither on the number of rows nor on their order. A
  // kernel that cannot promise this does not accept the launch.
  bool batch_invariant = false;
  // The exchange buffer that a collective uses (backend/push.h). Consecutive collectives have
  // different buffers.
  int exchange_buffer = 0;
  void* scratch = nullptr;
  uint32_t* counters = nullptr;
};

// Names the launch of a collective in messages: "op 'all_reduce' of model.layers.8.o_proj
// (bf16[4,4096])".
std::string meeting_text(std::string_view op, const KernelArgs& args);

// Enqueues the launch on a stream. Only a kernel whose `reads_lengths` holds may look at `lengths`.
// Capture: yes, except for kernels whose `reads_lengths` holds.
using BoundLaunch = std::function<void(Stream& stream, const StepLengths& lengths)>;

// One row of a device's kernel table. Of the rows for an op, the first one that takes a launch is
// chosen for it.
struct Kernel {
  std::string_view op;    // "rms_norm"
  std::string_view name;  // "rms_norm.row_per_warp", as shown by inspect and profilers
  bool (*accepts)(const KernelArgs& args) = nullptr;  // null: everything the shape function allows
  Workspace (*workspace)(const KernelArgs& args) = nullptr;  // null: none
  // Makes a bound launch: chooses the algorithm and does everything else that is done once. It may
  // be slow, and is never called inside a recording. Errors: kCompile naming the kernel, when the
  // outputs are not what this kernel computes.
  BoundLaunch (*bind)(Device& device, const KernelArgs& args) = nullptr;
  // The names of the optional operands that the kernel knows. It does not take a launch that has
  // another optional operand.
  std::array<std::string_view, 8> optional = {};
  // The reason, in words for users, why a decode step that has to use this kernel is slow. Empty if
  // it is not slow.
  std::string_view slow = {};
  // Returns whether the launch reads StepLengths, which a recording cannot depend on. Null: it does
  // not.
  bool (*reads_lengths)(const KernelArgs& args) = nullptr;
  // Returns how many nodes of a recording a launch becomes. Null: one node.
  int (*num_nodes)(const KernelArgs& args) = nullptr;
  // Returns whether the kernel can run a launch of `op`.
  [[nodiscard]] bool takes(std::string_view op, const KernelArgs& args) const;
};

// The kernels of a device; those of one op are in order of preference. Before launches are lowered,
// a caller can add kernels of its own in front, for Encore's ops or for ops of its own.
class KernelTable {
 public:
  KernelTable() = default;
  explicit KernelTable(std::span<const Kernel> rows) : rows_(rows.begin(), rows.end()) {}

  void add_first(const Kernel& kernel) { rows_.insert(rows_.begin(), kernel); }
  // Returns the first kernel that takes the launch. Errors: kUnsupported naming the op and its
  // operands when no kernel takes it.
  [[nodiscard]] const Kernel& choose(std::string_view op, const KernelArgs& args) const;
  [[nodiscard]] std::span<const Kernel> rows() const { return rows_; }

 private:
  std::vector<Kernel> rows_;
};

}  // namespace encore
