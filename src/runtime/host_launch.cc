#include "runtime/host_launch.h"

#include <algorithm>

namespace encore::runtime {

HostLaunch::HostLaunch(Device& device, std::string_view op, KernelArgs args,
                       std::vector<std::string_view> sources, int64_t num_twins)
    : op_(op), twins_(static_cast<size_t>(num_twins)) {
  sources.push_back("changes");
  for (Twin& twin : twins_) {
    for (const std::string_view name : sources) {
      TensorView& operand = args.inputs[name];
      twin.memory.push_back(device.allocate_host(operand.num_bytes()));
      operand.data = twin.memory.back().data();
      twin.operands.add(name, operand);
    }
    twin.done = device.create_event();
    twin.launch = device.kernels().choose(op, args).bind(device, args);
  }
}

void HostLaunch::begin() {
  if (is_filling_) return;
  is_filling_ = true;
  current_ = (current_ + 1) % twins_.size();
  Twin& twin = twins_[current_];
  if (twin.in_flight) twin.done->synchronize();
  twin.in_flight = false;
  std::ranges::fill(operand<int32_t>("changes"), 0);
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
