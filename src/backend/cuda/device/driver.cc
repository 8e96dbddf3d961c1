#include "backend/cuda/device/driver.h"

#include <cuda_runtime.h>

#include "backend/cuda/device/context.h"
#include "base/error.h"

namespace encore::cuda {
namespace {

// Looks up a driver function. `version` is the CUDA version of the signature in the function's
// typedef.
template <typename Function>
void look_up(Function& function, const char* name, unsigned int version) {
  void* address = nullptr;
  auto result = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &result),
        name);
  if (result != cudaDriverEntryPointSuccess || address == nullptr) {
    fail(ErrorKind::kDevice, "the NVIDIA driver lacks {}: install a driver for CUDA 13", name);
  }
  function = reinterpret_cast<Function>(address);
}

Driver look_up_all() {
  Driver d;
  look_up(d.get_error_string, "cuGetErrorString", 6000);
  look_up(d.mem_get_allocation_granularity, "cuMemGetAllocationGranularity", 10020);
  look_up(d.mem_address_reserve, "cuMemAddressReserve", 10020);
  look_up(d.mem_address_free, "cuMemAddressFree", 10020);
  look_up(d.mem_create, "cuMemCreate", 10020);
  look_up(d.mem_release, "cuMemRelease", 10020);
  look_up(d.mem_map, "cuMemMap", 10020);
  look_up(d.mem_unmap, "cuMemUnmap", 10020);
  look_up(d.mem_set_access, "cuMemSetAccess", 10020);
  look_up(d.graph_kernel_node_get_params, "cuGraphKernelNodeGetParams", 12000);
  look_up(d.func_get_name, "cuFuncGetName", 12030);
  look_up(d.kernel_get_name, "cuKernelGetName", 12030);
  look_up(d.tensor_map_encode_tiled, "cuTensorMapEncodeTiled", 12000);
  return d;
}

}  // namespace

const Driver& driver() {
  static const Driver functions = look_up_all();
  return functions;
}

void check(CUresult status, std::string_view what) {
  if (status == CUDA_SUCCESS) [[likely]]
    return;
  const char* text = nullptr;
  driver().get_error_string(status, &text);
  fail(status == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::kMemory : ErrorKind::kDevice,
       "{}{}: {} ({})", what, in_current_op(), text != nullptr ? text : "unknown error",
       static_cast<int>(status));
}

}  // namespace encore::cuda
