#include "backend/cpu/kernels.h"

#include <array>
#include <memory>
#include <vector>

#include "backend/cpu/device.h"
#include "backend/cpu/stream.h"

namespace encore::cpu {
namespace {

template <Run kRun>
BoundLaunch bind(Device& device, const KernelArgs& args);

// One row of the table whose kernel is `kRun`, with the optional operands that it knows.
template <Run kRun>
constexpr Kernel row(std::string_view op, std::string_view name,
                     std::array<std::string_view, 4> optional = {}) {
  return {.op = op, .name = name, .bind = bind<kRun>, .optional = optional};
}

constexpr Kernel kLinear = {.op = "linear",
                            .name = "linear.cpu",
                            .workspace = linear_workspace,
                            .bind = bind<linear>,
                            .optional = {"bias"}};

constexpr std::array kRows = {
    row<embedding>("embedding", "embedding.cpu", {"last_tokens"}),
    kLinear,
    row<rms_norm>("rms_norm", "rms_norm.cpu"),
    row<add_rms_norm>("add_rms_norm", "add_rms_norm.cpu"),
    row<add>("add", "add.cpu"),
    row<mul>("mul", "mul.cpu"),
    row<silu>("silu", "silu.cpu"),
    row<silu_mul>("silu_mul", "silu_mul.cpu"),
    row<rope>("rope", "rope.cpu"),
    row<kv_write>("kv_write", "kv_write.cpu"),
    row<rope_kv_write>("rope_kv_write", "rope_kv_write.cpu", {"q_norm", "k_norm"}),
    row<attention>("attention", "attention.cpu"),
    row<gather_rows>("gather_rows", "gather_rows.cpu"),
    row<adjust_logits>("adjust_logits", "adjust_logits.cpu"),
    row<sample>("sample", "sample.cpu"),
    row<log_probs>("log_probs", "log_probs.cpu"),
    row<write_token_state>("write_token_state", "write_token_state.cpu"),
    row<advance>("advance", "advance.cpu"),
    row<write_pages>("write_pages", "write_pages.cpu"),
};

template <Run kRun>
std::string_view name_of() {
  for (const Kernel& kernel : kRows) {
    if (kernel.bind == bind<kRun>) return kernel.name;
  }
  return "";
}

template <Run kRun>
BoundLaunch bind(Device& device, const KernelArgs& args) {
  return bind_run(device, args, name_of<kRun>(), kRun);
}

}  // namespace

BoundLaunch bind_run(Device& device, const KernelArgs& args, std::string_view kernel, Run run) {
  ENCORE_CHECK(device.kind() == DeviceKind::kCpu, "a CPU kernel bound on another device");
  Pool* pool = &static_cast<CpuDevice&>(device).pool();
  // Shared by the bound launch and every recording made of it.
  auto shared = std::make_shared<const KernelArgs>(args);
  return [pool, shared, kernel, run](Stream& stream, const StepLengths&) {
    enqueue(stream, kernel, [pool, shared, run] { run(*pool, *shared); });
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
  return KernelTable(cpu::kRows);
}

}  // namespace encore
