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
  // `args` lacks the memory of the inputs `filled`, by position.
  // Errors: kMemory; kUnsupported when the device has no kernel for the op.
  HostLaunch(Device& device, std::string_view op, KernelArgs args, std::span<const size_t> filled);

  // Readies the operands to be filled for the next launch; may wait for the launch before the last.
  // False when they are being filled already.
  bool begin();
  // The memory of the i-th of `filled`. REQUIRES: begin().
  template <typename T>
  [[nodiscard]] std::span<T> operand(size_t i) const {
    const Memory& memory = twins_[current_].memory[i];
    return {reinterpret_cast<T*>(memory.data()), static_cast<size_t>(memory.bytes()) / sizeof(T)};
  }
  // Enqueues the launch, if there has been a begin() since the last.
  void launch(Stream& stream);

 private:
  struct Twin {
    std::vector<Memory> memory;
    std::unique_ptr<Event> done;
    bool in_flight = false;
    BoundLaunch launch;
  };

  std::string_view op_;
  std::array<Twin, 2> twins_;
  size_t current_ = 0;
  bool is_filling_ = false;
};

}  // namespace encore::runtime
