// Finds out, for `encore doctor`, whether CUDA can be used on this machine.
#include <fmt/format.h>

#include "backend/cuda/collectives/exchange.h"
#include "backend/cuda/device/context.h"
#include "backend/cuda/device/device.h"

namespace encore {
namespace {

Finding find_driver() {
  Finding finding{"NVIDIA driver", "none", "install a driver for CUDA 13 (580 or newer)"};
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return finding;
  finding.found = fmt::format("for CUDA {}", cuda::version_text(version));
  if (version >= 13000) finding.remedy.clear();
  return finding;
}

Finding find_gpu(int ordinal) {
  Finding finding{fmt::format("GPU {}", ordinal), "", ""};
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, ordinal);
  if (status != cudaSuccess) {
    finding.found = cudaGetErrorString(status);
    finding.remedy = "check it with nvidia-smi";
    return finding;
  }
  finding.found = fmt::format("{}, {:.0f} GB, compute capability {}.{}", properties.name,
                              static_cast<double>(properties.totalGlobalMem) / 1e9,
                              properties.major, properties.minor);
  if (properties.major != 9 || properties.minor != 0) {
    finding.remedy = "Encore's kernels need compute capability 9.0 (H100, H200)";
  }
  return finding;
}

Finding find_cublaslt() {
  try {
    const cuda::Library library("libcublasLt.so.13");
    size_t (*get_version)() = nullptr;
    library.look_up(get_version, "cublasLtGetVersion");
    return {"cuBLASLt",
            fmt::format("{} ({})", cuda::CublasLt::version_text(get_version()), library.path()),
            ""};
  } catch (const Error& error) {
    return {"cuBLASLt", "not found", error.what()};
  }
}

}  // namespace

std::vector<Finding> cuda_findings() {
  std::vector<Finding> findings = {find_driver()};
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  for (int i = 0; i < count; ++i)
    findings.push_back(find_gpu(i));
  for (Finding& finding : cuda::find_peers(count))
    findings.push_back(std::move(finding));
  if (count == 0) {
    findings.push_back({"GPU", "none that CUDA can use", "run on a machine with an H100 or H200"});
  }
  cudaGetLastError();
  findings.push_back(find_cublaslt());
  return findings;
}

}  // namespace encore
