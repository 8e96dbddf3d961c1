#include "backend/cpu/kernels.h"

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/device.h"
#include "backend/cpu/stream.h"

namespace encore::cpu {

BoundLaunch bind_run(Device& device, const KernelArgs& args, std::string_view kernel, Run run) {
  ENCORE_CHECK(device.kind() == DeviceKind::kCpu, "a CPU kernel bound on another device");
  CpuDevice* cpu = &static_cast<CpuDevice&>(device);
  // The bound launch and every recording made of it share these arguments.
  auto shared = std::make_shared<const KernelArgs>(args);
  return [cpu, shared, kernel, run](Stream& stream, const StepLengths&) {
    enqueue(stream, kernel, [cpu, shared, run] {
      run(cpu->pool(), *shared);
      cpu->beat();
    });
  };
}

float* thread_buffer(Buffer slot, int64_t count) {
  thread_local std::array<std::vector<float>, static_cast<size_t>(Buffer::kCount)> buffers;
  std::vector<float>& buffer = buffers[static_cast<size_t>(slot)];
  if (buffer.size() < static_cast<size_t>(count)) buffer.resize(static_cast<size_t>(count));
  return buffer.data();
}

}  // namespace encore::cpu

namespace encore {

KernelTable cpu_kernels() {
  std::vector<Kernel> rows;
  for (const std::span<const Kernel> part :
       {cpu::linear_kernels(), cpu::lora_kernels(), cpu::expert_kernels(), cpu::norm_kernels(),
        cpu::elementwise_kernels(), cpu::row_kernels(), cpu::rope_kernels(),
        cpu::attention_kernels(), cpu::advance_kernels(), cpu::logits_kernels(),
        cpu::sample_kernels(), cpu::accept_kernels(), cpu::lookup_drafts_kernels(),
        cpu::draft_chain_kernels(), cpu::collective_kernels()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return KernelTable(rows);
}

}  // namespace encore
