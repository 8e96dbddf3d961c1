#include "runtime/host_launch.h"

namespace encore::runtime {

HostLaunch::HostLaunch(Device& device, std::string_view op, KernelArgs args,
                       const std::array<std::string_view, 2>& filled)
    : op_(op), filled_(filled) {
  for (Twin& twin : twins_) {
    for (size_t i = 0; i < filled.size(); ++i) {
      TensorView& operand = args.inputs[filled[i]];
      twin.memory[i] = device.allocate_host(operand.num_bytes());
      operand.data = twin.memory[i].data();
    }
    twin.done = device.create_event();
    twin.launch = device.kernels().choose(op, args).bind(device, args);
  }
}

bool HostLaunch::begin() {
  if (is_filling_) return false;
  is_filling_ = true;
  current_ = 1 - current_;
  Twin& twin = twins_[current_];
  if (twin.in_flight) twin.done->synchronize();
  twin.in_flight = false;
  return true;
}

void HostLaunch::launch(Stream& stream) {
  if (!is_filling_) return;
  is_filling_ = false;
  Twin& twin = twins_[current_];
  stream.launch({.label = op_, .after = {}}, twin.launch, {});
  stream.record(*twin.done);
  twin.in_flight = true;
}

}  // namespace encore::runtime
