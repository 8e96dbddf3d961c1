// Provides the few functions of the driver that the runtime library does not offer. They are looked
// up when they are first needed, so that the executable starts without a driver.
#pragma once

#include <string_view>

#include <cuda.h>
#include <cudaTypedefs.h>

namespace encore::cuda {

struct Driver {
  PFN_cuGetErrorString_v6000 get_error_string = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 mem_get_allocation_granularity = nullptr;
  PFN_cuMemAddressReserve_v10020 mem_address_reserve = nullptr;
  PFN_cuMemAddressFree_v10020 mem_address_free = nullptr;
  PFN_cuMemCreate_v10020 mem_create = nullptr;
  PFN_cuMemRelease_v10020 mem_release = nullptr;
  PFN_cuMemMap_v10020 mem_map = nullptr;
  PFN_cuMemUnmap_v10020 mem_unmap = nullptr;
  PFN_cuMemSetAccess_v10020 mem_set_access = nullptr;
  PFN_cuGraphKernelNodeGetParams_v12000 graph_kernel_node_get_params = nullptr;
  PFN_cuFuncGetName_v12030 func_get_name = nullptr;
  PFN_cuKernelGetName_v12030 kernel_get_name = nullptr;
  PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encode_tiled = nullptr;
};

// Returns the driver's functions. Errors: kDevice naming a function that the driver lacks.
const Driver& driver();

// Throws if `status` is an error, and names `what` and the op being launched. Errors: kMemory when
// the device has no memory left, else kDevice.
void check(CUresult status, std::string_view what);

}  // namespace encore::cuda
