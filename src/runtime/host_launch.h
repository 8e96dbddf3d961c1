// A launch between two steps by which the host tells the device something.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/device.h"

namespace encore::runtime {

// Some of its operands are host memory, read when the launch is enqueued or when it runs: `changes`,
// which says what is to be written, where zeros say nothing, and what it takes from. There are two of
// each or more: the host fills one while the device may still read the others.
// Threads: one. Lifetime: refers to the memory of the other operands.
class HostLaunch {
 public:
  HostLaunch() = default;
  // `args` lacks the memory of `changes` and of the inputs `sources`, whose names are literals.
  // `num_twins`: launches that the device may not have run yet, and one.
  // Errors: kMemory; kUnsupported when the device has no kernel for the op.
  HostLaunch(Device& device, std::string_view op, KernelArgs args,
             std::vector<std::string_view> sources, int64_t num_twins = 2);

  // Readies the next operands to be filled, unless some are being filled already; may wait for an
  // earlier launch. Nothing is to be written then.
  void begin();
  // The memory of `changes` or of one of `sources`, of the last begin().
  template <typename T>
  [[nodiscard]] std::span<T> operand(std::string_view name) const {
    const TensorView& view = twins_[current_].operands[name];
    return {view.as<T>(), static_cast<size_t>(view.num_bytes()) / sizeof(T)};
  }
  // Enqueues the launch, if there has been a begin() since the last.
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
