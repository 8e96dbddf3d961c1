// Defines a launch that brings values from the host to the device between two steps.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/device.h"

namespace encore::runtime {

// A launch with some operands in host memory, which it reads when it is enqueued or when it runs.
// The operand `changes` says what the launch writes; an entry of zeros changes nothing. The other
// host operands hold the values. Each host operand has two or more copies: the host fills one copy
// while the device may still read the others. Threads: one. Lifetime: refers to the memory of the
// other operands.
class HostLaunch {
 public:
  HostLaunch() = default;
  // `args` comes without memory for `changes` and for the inputs named in `sources`: this object
  // allocates it. The names are string literals. `num_twins` is the number of copies of these
  // operands: one more than the launches that may wait for the device at a time. Errors: kMemory;
  // kUnsupported when the device has no kernel for the op.
  HostLaunch(Device& device, std::string_view op, KernelArgs args,
             std::vector<std::string_view> sources, int64_t num_twins = 2);

  // Prepares the next copy of the operands to be filled, with `changes` all zero, unless a copy is
  // being filled already. May wait for an earlier launch.
  void begin();
  // Returns the memory of the operand `changes`, or of one of the operands `sources`, in the copy
  // that the last begin() prepared.
  template <typename T>
  [[nodiscard]] std::span<T> operand(std::string_view name) const {
    const TensorView& view = twins_[current_].operands[name];
    return {view.as<T>(), static_cast<size_t>(view.num_bytes()) / sizeof(T)};
  }
  // Enqueues the launch if begin() was called since the last launch.
  void launch(Stream& stream);

 private:
  struct Twin {
    std::vector<Memory> memory;
    Views operands;
    std::unique_ptr<Event> done;
    bool in_flight = false;
    BoundLaunch launch;
  };

  std::string_view op_;
  std::vector<Twin> twins_;
  size_t current_ = 0;
  bool is_filling_ = false;
};

}  // namespace encore::runtime
