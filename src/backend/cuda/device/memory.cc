#include "backend/cuda/device/memory.h"

#include <algorithm>
#include <vector>

#include <cuda_runtime.h>

#include "backend/cuda/device/context.h"
#include "backend/cuda/device/driver.h"
#include "backend/fault.h"
#include "base/rounding.h"

namespace encore::cuda {
namespace {

// Formats a number of bytes in GB, with two decimals.
std::string gigabytes(size_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

[[noreturn]] void fail_out_of_memory(int64_t bytes) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  cudaGetLastError();
  fail(ErrorKind::kMemory, "the GPU has no {} more: {} of {} are free",
       gigabytes(static_cast<size_t>(bytes)), gigabytes(free_bytes), gigabytes(total_bytes));
}

// A range of device addresses whose memory is mapped in chunks. Each call of map() that grows the
// range adds one chunk.
class CudaAddressRange final : public AddressRange {
 public:
  CudaAddressRange(int ordinal, int64_t bytes, std::vector<int> also)
      : ordinal_(ordinal), users_(std::move(also)) {
    if (std::ranges::find(users_, ordinal) == users_.end()) users_.push_back(ordinal);
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal};
    size_t granularity = 0;
    check(driver().mem_get_allocation_granularity(&granularity, &properties_,
                                                  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "cuMemGetAllocationGranularity");
    granularity_ = static_cast<int64_t>(granularity);
    bytes_ = rounded(std::max<int64_t>(bytes, 1));
    check(driver().mem_address_reserve(&base_, static_cast<size_t>(bytes_), 0, 0, 0),
          "cuMemAddressReserve");
  }

  ~CudaAddressRange() override {
    when_not_recording([ordinal = ordinal_, base = base_, bytes = bytes_, chunks = chunks_] {
      use_device(ordinal);
      synchronize_device();
      unmap_chunks(base, chunks);
      driver().mem_address_free(base, static_cast<size_t>(bytes));
    });
  }
  CudaAddressRange(const CudaAddressRange&) = delete;
  CudaAddressRange& operator=(const CudaAddressRange&) = delete;

  [[nodiscard]] std::byte* data() const override { return reinterpret_cast<std::byte*>(base_); }
  [[nodiscard]] int64_t bytes() const override { return bytes_; }
  [[nodiscard]] int64_t granularity() const override { return granularity_; }
  [[nodiscard]] int64_t mapped_bytes() const override { return mapped_bytes_; }

  void map(int64_t bytes) override {
    forbid_while_recording("AddressRange::map()");
    fault::checkpoint("map");
    const int64_t wanted = rounded(bytes);
    if (wanted > bytes_) {
      fail(ErrorKind::kMemory, "{} bytes do not fit into a range of {}", bytes, bytes_);
    }
    if (wanted <= mapped_bytes_) return;
    use_device(ordinal_);
    const int64_t chunk = wanted - mapped_bytes_;
    CUmemGenericAllocationHandle handle = 0;
    const CUresult created =
        driver().mem_create(&handle, static_cast<size_t>(chunk), &properties_, 0);
    if (created == CUDA_ERROR_OUT_OF_MEMORY) fail_out_of_memory(chunk);
    check(created, "cuMemCreate");
    const CUdeviceptr start = base_ + static_cast<CUdeviceptr>(mapped_bytes_);
    const CUresult mapped = driver().mem_map(start, static_cast<size_t>(chunk), 0, handle, 0);
    // The mapping keeps the physical memory alive after its handle is released; mem_unmap frees the
    // memory.
    driver().mem_release(handle);
    check(mapped, "cuMemMap");
    std::vector<CUmemAccessDesc> access;
    for (const int user : users_) {
      CUmemAccessDesc& own = access.emplace_back();
      own.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = user};
      own.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    const CUresult granted =
        driver().mem_set_access(start, static_cast<size_t>(chunk), access.data(), access.size());
    if (granted != CUDA_SUCCESS) driver().mem_unmap(start, static_cast<size_t>(chunk));
    check(granted, "cuMemSetAccess");
    chunks_.push_back(chunk);
    mapped_bytes_ = wanted;
  }

  void unmap() override {
    forbid_while_recording("AddressRange::unmap()");
    if (chunks_.empty()) return;
    use_device(ordinal_);
    synchronize_device();
    check(unmap_chunks(base_, chunks_), "cuMemUnmap");
    chunks_.clear();
    mapped_bytes_ = 0;
  }

 private:
  [[nodiscard]] int64_t rounded(int64_t bytes) const { return round_up(bytes, granularity_); }

  static CUresult unmap_chunks(CUdeviceptr base, const std::vector<int64_t>& chunks) {
    CUresult first_failure = CUDA_SUCCESS;
    for (const int64_t chunk : chunks) {
      const CUresult status = driver().mem_unmap(base, static_cast<size_t>(chunk));
      if (first_failure == CUDA_SUCCESS) first_failure = status;
      base += static_cast<CUdeviceptr>(chunk);
    }
    return first_failure;
  }

  int ordinal_;
  std::vector<int> users_;  // devices that may read and write the memory
  CUmemAllocationProp properties_{};
  int64_t granularity_ = 0;
  CUdeviceptr base_ = 0;
  int64_t bytes_ = 0;
  int64_t mapped_bytes_ = 0;
  std::vector<int64_t> chunks_;
};

}  // namespace

Memory allocate_device_memory(int ordinal, int64_t bytes) {
  forbid_while_recording("device memory is allocated");
  fault::checkpoint("allocate");
  use_device(ordinal);
  void* data = nullptr;
  // Even an allocation of 0 bytes must have an address, because the owner of a Memory expects one.
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (status == cudaErrorMemoryAllocation) fail_out_of_memory(bytes);
  check(status, "cudaMalloc");
  return {data, bytes, [](void* memory) { when_not_recording([memory] { cudaFree(memory); }); }};
}

Memory allocate_pinned_memory(int ordinal, int64_t bytes) {
  forbid_while_recording("pinned host memory is allocated");
  fault::checkpoint("allocate");
  use_device(ordinal);
  void* data = nullptr;
  check(
      cudaHostAlloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostAllocDefault),
      "cudaHostAlloc");
  return {data, bytes,
          [](void* memory) { when_not_recording([memory] { cudaFreeHost(memory); }); }};
}

std::unique_ptr<AddressRange> reserve_addresses(int ordinal, int64_t bytes, std::vector<int> also) {
  forbid_while_recording("addresses are reserved");
  fault::checkpoint("reserve");
  use_device(ordinal);
  return std::make_unique<CudaAddressRange>(ordinal, bytes, std::move(also));
}

}  // namespace encore::cuda
