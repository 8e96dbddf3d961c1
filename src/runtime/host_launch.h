// A launch between two steps by which the host tells the device something.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/device.h"

namespace encore::runtime {

// Some of its operands are host memory that the device reads when the launch runs. There are two of
// each: the host fills one while the device may still read the other.
// Threads: one. Lifetime: refers to the memory of the other operands.
class HostLaunch {
 public:
  HostLaunch() = default;
  // `args` lacks the memory of two inputs: those that the host fills. Names are literals.
  // Errors: kMemory; kUnsupported when the device has no kernel for the op.
  HostLaunch(Device& device, std::string_view op, KernelArgs args,
             const std::array<std::string_view, 2>& filled);

  // Readies the operands to be filled for the next launch; may wait for the launch before the last.
  // False when they are being filled already.
  bool begin();
  // The memory of one of `filled`. REQUIRES: begin().
  template <typename T>
  [[nodiscard]] std::span<T> operand(std::string_view name) const {
    const Memory& memory = twins_[current_].memory[name == filled_[0] ? 0 : 1];
    return {reinterpret_cast<T*>(memory.data()), static_cast<size_t>(memory.bytes()) / sizeof(T)};
  }
  // Enqueues the launch, if there has been a begin() since the last.
  void launch(Stream& stream);

 private:
  struct Twin {
    std::array<Memory, 2> memory;
    std::unique_ptr<Event> done;
    bool in_flight = false;
    BoundLaunch launch;
  };

  std::string_view op_;
  std::array<std::string_view, 2> filled_;
  std::array<Twin, 2> twins_;
  size_t current_ = 0;
  bool is_filling_ = false;
};

}  // namespace encore::runtime
