// A launch between two steps by which the host tells the device something.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/device.h"

namespace encore::runtime {

// A launch that has some operands in host memory, which it reads when it is enqueued or when it runs. One is
// `changes`, which says what is to be written; its zeros change nothing. The others are the inputs from which the
// launch takes values. Each of them exists twice or more often: the host fills one copy while the device may still
// read the others.
// Threads: one. Lifetime: refers to the memory of the other operands.
class HostLaunch {
 public:
  HostLaunch() = default;
  // `args` comes without memory for `changes` and for the inputs named in `sources`: this object
  // allocates it. The names are string literals. `num_twins`: the number of copies of these
  // operands, which is one more than the launches that the device may not have run yet.
  // Errors: kMemory; kUnsupported when the device has no kernel for the op.
  HostLaunch(Device& device, std::string_view op, KernelArgs args,
             std::vector<std::string_view> sources, int64_t num_twins = 2);

  // Prepares the next copy of the operands to be filled, with `changes` all zero, unless a copy is
  // being filled already. May wait for an earlier launch.
  void begin();
  // Returns the memory of `changes` or of one of `sources` in the copy that the last begin()
  // prepared.
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
