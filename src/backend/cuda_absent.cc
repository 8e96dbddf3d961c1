// Replaces backend/cuda in builds without CUDA.
#include "backend/device.h"

namespace encore {
namespace {

constexpr const char* kRemedy =
    "configure with `cmake --preset cuda` (needs nvcc 13), or choose --device cpu";

}  // namespace

std::unique_ptr<Device> create_cuda_device(std::optional<int> /*ordinal*/) {
  fail(ErrorKind::kDevice, "built without CUDA; to run on a GPU, {}", kRemedy);
}

std::unique_ptr<Device> create_cuda_ranks(const CudaRanks& ranks) {
  return create_cuda_device(ranks.first);
}

std::optional<KernelTable> cuda_kernels() {
  return std::nullopt;
}

std::vector<Finding> cuda_findings() {
  return {{"CUDA backend", "not part of this build", kRemedy}};
}

}  // namespace encore
