#include "backend/cuda/device/device.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/collectives/exchange.h"
#include "backend/cuda/device/context.h"
#include "backend/cuda/device/memory.h"
#include "backend/cuda/device/stream.h"
#include "backend/cuda/device/tracer.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/codes.h"
#include "backend/cuda/source_hash.h"

namespace encore::cuda {
namespace {

constexpr const char* kOtherDevice = "or choose --device cpu";

int count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver || status == cudaErrorInitializationError ||
      status == cudaErrorStubLibrary || status == cudaErrorSystemDriverMismatch) {
    cudaGetLastError();
    fail(ErrorKind::kDevice,
         "no usable NVIDIA driver ({}): install a driver for CUDA 13 (580 or newer), {}",
         cudaGetErrorString(status), kOtherDevice);
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    cudaGetLastError();
    fail(ErrorKind::kDevice, "no NVIDIA GPU found: run on a machine with one, {}", kOtherDevice);
  }
  check(status, "cudaGetDeviceCount");
  return count;
}

std::vector<Candidate> all_candidates() {
  std::vector<Candidate> candidates(static_cast<size_t>(count_devices()));
  for (size_t i = 0; i < candidates.size(); ++i) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, static_cast<int>(i)), "cudaGetDeviceProperties");
    candidates[i] = {properties.name, properties.major, properties.minor};
  }
  return candidates;
}

// Returns the release of the kernel driver, such as "580.65.06", or "" if its version file does not
// name one.
std::string driver_release() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (word.find('.') != std::string::npos && std::isdigit(word.front()) != 0) return word;
  }
  return "";
}

// Environment variables that change how launches overlap, or which kernels cuBLASLt chooses from.
// Both change measured times.
constexpr std::array kTimingVariables = {kSerialLaunches,
                                         "CUDA_LAUNCH_BLOCKING",
                                         "CUDA_DEVICE_MAX_CONNECTIONS",
                                         "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                                         "NVIDIA_TF32_OVERRIDE",
                                         "CUBLAS_WORKSPACE_CONFIG"};

// Returns the key of tuning results: everything that decides which configuration of one of our
// kernels is the fastest. The version of cuBLASLt is not part of the key, because the names of
// cuBLASLt's configurations contain it. So cuBLASLt need not be opened to make a key.
TuningKey tuning_key(const cudaDeviceProp& properties) {
  int driver_version = 0;
  check(cudaDriverGetVersion(&driver_version), "cudaDriverGetVersion");
  return {{"device", properties.name},
          {"multiprocessors", std::to_string(properties.multiProcessorCount)},
          {"driver", fmt::format("{} {}", driver_release(), version_text(driver_version))},
          {"source", std::string(kSourceHash)},
          {"environment", environment_text(kTimingVariables)}};
}

// Returns the best rate at which the GPU's memory can be read, in bytes per microsecond: its peak
// rate, less the time for refreshing it and for switching the bus between reading and writing.
double read_bytes_per_us(int ordinal) {
  constexpr double kOfPeak = 0.94;
  int kilohertz = 0;
  int bits = 0;
  check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, ordinal), "memory clock");
  check(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, ordinal), "memory bus");
  return kOfPeak * 2e-3 * kilohertz * bits / 8;
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

const Chip& chip(Device& device) {
  return static_cast<CudaDevice&>(device).chip();
}

int choose_device(std::span<const Candidate> candidates, std::optional<int> ordinal) {
  const auto count = static_cast<int>(candidates.size());
  if (ordinal && (*ordinal < 0 || *ordinal >= count)) {
    fail(ErrorKind::kDevice,
         "no GPU {}: CUDA shows {} (0 to {}; CUDA_VISIBLE_DEVICES says which of the machine's)",
         *ordinal, count, count - 1);
  }
  const auto first = std::find_if(candidates.begin(), candidates.end(),
                                  [](const Candidate& candidate) { return candidate.can_run(); });
  const bool none = first == candidates.end();
  const int chosen = ordinal.value_or(none ? 0 : static_cast<int>(first - candidates.begin()));
  const Candidate& candidate = candidates[chosen];
  if (!candidate.can_run()) {
    fail(ErrorKind::kDevice,
         "{} has compute capability {}.{}; Encore's kernels are built for 9.0 (H100, H200): use {}"
         "{}, {}",
         candidate.name, candidate.major, candidate.minor, none ? "such a GPU" : "--device cuda:",
         none ? "" : std::to_string(first - candidates.begin()), kOtherDevice);
  }
  return chosen;
}

std::string choice_text(std::span<const Candidate> candidates, int chosen) {
  if (candidates.size() == 1) return "";
  return fmt::format("cuda:{} of {}, {}", chosen, candidates.size(), candidates[chosen].name);
}

std::vector<int> choose_devices(std::span<const Candidate> candidates, std::optional<int> ordinal,
                                int num_ranks) {
  if (num_ranks > push::kMostRanks) {
    fail(ErrorKind::kUnsupported, "--tensor-parallel {}: at most {} GPUs compute a model together",
         num_ranks, push::kMostRanks);
  }
  const int first = choose_device(candidates, ordinal);
  const auto count = static_cast<int>(candidates.size());
  if (first + num_ranks > count) {
    fail(ErrorKind::kUnsupported,
         "--tensor-parallel {} needs as many GPUs from GPU {} on, and CUDA shows {} (0 to {}; "
         "CUDA_VISIBLE_DEVICES says which of the machine's): take --tensor-parallel {}, {}",
         num_ranks, first, count, count - 1, count - first, kOtherDevice);
  }
  std::vector<int> chosen;
  for (int i = first; i < first + num_ranks; ++i) {
    if (candidates[static_cast<size_t>(i)].name != candidates[static_cast<size_t>(first)].name) {
      fail(ErrorKind::kUnsupported,
           "--tensor-parallel {}: GPU {} is {}, and GPU {} is {}; ranks need equal GPUs: choose "
           "them by "
           "CUDA_VISIBLE_DEVICES",
           num_ranks, first, candidates[static_cast<size_t>(first)].name, i,
           candidates[static_cast<size_t>(i)].name);
    }
    chosen.push_back(i);
  }
  return chosen;
}

CudaDevice::CudaDevice(std::optional<int> ordinal, Rank rank, std::shared_ptr<Exchange> exchange)
    : rank_(rank), exchange_(std::move(exchange)) {
  const std::vector<Candidate> candidates = all_candidates();
  ordinal_ = choose_device(candidates, ordinal);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties");
  name_ = properties.name;
  choice_ = choice_text(candidates, ordinal_);
  use_device(ordinal_);
  check(cudaFree(nullptr), "starting CUDA");  // creates the context
  chip_.num_multiprocessors = properties.multiProcessorCount;
  chip_.max_shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlockOptin);
  chip_.max_shared_bytes_per_multiprocessor =
      static_cast<int>(properties.sharedMemPerMultiprocessor);
  chip_.read_bytes_per_us = read_bytes_per_us(ordinal_);
  kernels_ = KernelTable(all_kernels());
  tuner_ = std::make_shared<Tuner>(tuning_key(properties),
                                   create_launch_timer(*this, properties.l2CacheSize));
}

std::shared_ptr<Communicator> CudaDevice::communicator() const {
  return exchange_ ? exchange_->communicator() : nullptr;
}

void CudaDevice::add_peer(const std::shared_ptr<CudaDevice>& peer) {
  peer->tuner_->follow(tuner_, [communicator = communicator()] { communicator->check(); });
  peers_.push_back(peer);
}

DeviceInfo CudaDevice::info() const {
  use_device(ordinal_);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  int driver_version = 0;
  int runtime_version = 0;
  check(cudaDriverGetVersion(&driver_version), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime_version), "cudaRuntimeGetVersion");
  DeviceInfo info;
  info.name = name_;
  info.choice = choice_;
  info.detail =
      fmt::format("{} multiprocessors, driver for CUDA {}, runtime {}", chip_.num_multiprocessors,
                  version_text(driver_version), version_text(runtime_version));
  const std::lock_guard lock(mutex_);
  if (cublaslt_) {
    info.detail += fmt::format(", cuBLASLt {} ({})", cublaslt_->version(), cublaslt_->path());
  }
  info.total_bytes = static_cast<int64_t>(total_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  return info;
}

std::optional<int64_t> CudaDevice::used_bytes() const {
  use_device(ordinal_);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return static_cast<int64_t>(total_bytes - free_bytes);
}

Memory CudaDevice::allocate(int64_t bytes) {
  return allocate_device_memory(ordinal_, bytes);
}
Memory CudaDevice::allocate_host(int64_t bytes) {
  return allocate_pinned_memory(ordinal_, bytes);
}
std::unique_ptr<AddressRange> CudaDevice::reserve(int64_t bytes) {
  return reserve_addresses(ordinal_, bytes);
}
std::unique_ptr<Stream> CudaDevice::create_stream() {
  return std::make_unique<CudaStream>(ordinal_, exchange_, rank_.index);
}
std::unique_ptr<Event> CudaDevice::create_event() {
  return std::make_unique<CudaEvent>(ordinal_);
}
std::unique_ptr<Tracer> CudaDevice::create_tracer(TraceDetail detail) {
  return detail == TraceDetail::kLaunches ? create_cupti_tracer(ordinal_)
                                          : create_replay_tracer(ordinal_);
}

void CudaDevice::fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                             const MatrixPlace& at) {
  const LaunchAttributes attributes{.label = "fill_random", .id = -1, .after = {}};
  stream.launch(
      attributes,
      [&](Stream& on, const StepLengths&) { launch_fill_random(on, tensor, seed, stddev, at); },
      {});
}

void CudaDevice::arrange_weight(Stream& stream, const TensorView& weight) {
  if (weight.dtype != DType::kFP8) return;
  const LaunchAttributes attributes{.label = "arrange_weight", .id = -1, .after = {}};
  stream.launch(attributes, [&](Stream& on, const StepLengths&) { arrange_codes(on, weight); }, {});
}

CublasLt& CudaDevice::cublaslt() {
  const std::lock_guard lock(mutex_);
  if (!cublaslt_) {
    forbid_while_recording("cuBLASLt is opened");
    use_device(ordinal_);
    cublaslt_ = std::make_unique<CublasLt>();
  }
  return *cublaslt_;
}

}  // namespace encore::cuda

namespace encore {

std::unique_ptr<Device> create_cuda_device(std::optional<int> ordinal) {
  return std::make_unique<cuda::CudaDevice>(ordinal);
}

std::unique_ptr<Device> create_cuda_ranks(const CudaRanks& ranks) {
  using cuda::CudaDevice;
  const int size = ranks.num_ranks;
  if (size <= 1) return create_cuda_device(ranks.first);
  const std::vector<int> ordinals = cuda::choose_devices(cuda::all_candidates(), ranks.first, size);
  const auto exchange = std::make_shared<cuda::Exchange>(
      ordinals, std::make_shared<Communicator>(size, ranks.rank_timeout), ranks.wait_timeout);
  auto device = std::make_unique<CudaDevice>(ordinals[0], Rank{0, size}, exchange);
  for (int index = 1; index < size; ++index) {
    device->add_peer(std::make_shared<CudaDevice>(ordinals[static_cast<size_t>(index)],
                                                  Rank{index, size}, exchange));
  }
  cuda::use_device(ordinals[0]);  // this thread drives rank 0
  return device;
}

}  // namespace encore
