// Implements the Device interface for one CUDA GPU.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/cublaslt.h"
#include "backend/device.h"
#include "backend/tuning.h"

namespace encore::cuda {

// The properties of a GPU that decide whether Encore chooses it.
struct Candidate {
  std::string name;
  int major = 0;  // major number of its compute capability
  int minor = 0;

  [[nodiscard]] bool can_run() const { return major == 9 && minor == 0; }
};
// Returns the GPU to use: the one with `ordinal` or, without an ordinal, the first that can run
// Encore's kernels.
// Errors: kDevice, with the remedy.
int choose_device(std::span<const Candidate> candidates, std::optional<int> ordinal);
// Returns the GPUs of `num_ranks` ranks: the one that choose_device() returns, and those with the
// ordinals behind it.
// Errors: as choose_device(); kUnsupported where there are too few GPUs, or they are of several
// kinds.
std::vector<int> choose_devices(std::span<const Candidate> candidates, std::optional<int> ordinal,
                                int num_ranks);
// Describes the chosen GPU, as in "cuda:1 of 2, H100". The text is empty where there is only one
// GPU.
std::string choice_text(std::span<const Candidate> candidates, int chosen);

class Exchange;

class CudaDevice final : public Device {
 public:
  // `exchange` is given where the GPU belongs to rank `rank` of several ranks.
  // Errors: kDevice naming what is missing and the remedy.
  explicit CudaDevice(std::optional<int> ordinal, Rank rank = {},
                      std::shared_ptr<Exchange> exchange = nullptr);

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCuda; }
  [[nodiscard]] DeviceInfo info() const override;
  [[nodiscard]] std::optional<int64_t> used_bytes() const override;
  Memory allocate(int64_t bytes) override;
  Memory allocate_host(int64_t bytes) override;
  std::unique_ptr<AddressRange> reserve(int64_t bytes) override;
  std::unique_ptr<Stream> create_stream() override;
  std::unique_ptr<Event> create_event() override;
  [[nodiscard]] KernelTable& kernels() override { return kernels_; }
  [[nodiscard]] bool sets_up_late() const override { return true; }
  using Device::fill_random;
  void fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                   const MatrixPlace& at) override;
  void arrange_weight(Stream& stream, const TensorView& weight) override;
  double read_bandwidth() override;
  std::unique_ptr<Tracer> create_tracer(TraceDetail detail) override;
  [[nodiscard]] Tuner& tuner() override { return *tuner_; }

  [[nodiscard]] Rank rank() const override { return rank_; }
  [[nodiscard]] std::shared_ptr<Communicator> communicator() const override;
  [[nodiscard]] std::span<const std::shared_ptr<Device>> peers() const override { return peers_; }
  // Adds the device of another rank, whose kernels follow the tuner's choices on this device.
  void add_peer(const std::shared_ptr<CudaDevice>& peer);
  // Returns the memory through which this GPU exchanges data with those of other ranks. Null
  // without other ranks.
  [[nodiscard]] Exchange* exchange() const { return exchange_.get(); }

  [[nodiscard]] const Chip& chip() const { return chip_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  // Returns cuBLASLt, which the first call opens. Errors: kDevice.
  [[nodiscard]] CublasLt& cublaslt();

 private:
  int ordinal_;
  Rank rank_;
  std::shared_ptr<Exchange> exchange_;          // shared by all ranks' devices
  std::vector<std::shared_ptr<Device>> peers_;  // shared with the threads that drive them
  Chip chip_;
  std::string name_;
  std::string choice_;
  KernelTable kernels_;
  std::shared_ptr<Tuner> tuner_;  // shared with the other ranks' tuners
  mutable std::mutex mutex_;      // guards the pointer cublaslt_
  std::unique_ptr<CublasLt> cublaslt_;
};

// Formats a version number of CUDA: "13.0" for 13000.
std::string version_text(int version);

}  // namespace encore::cuda
