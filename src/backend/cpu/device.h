// Declares the CPU as a device.
#pragma once

#include "backend/cpu/pool.h"
#include "backend/cpu/tracer.h"
#include "backend/device.h"
#include "backend/tuning.h"

namespace encore::cpu {

// The CPU as a device. Threads: as Device says. Kernels of all streams share one pool and take
// turns on it.
class CpuDevice : public Device {
 public:
  // Creates the device of one rank. `options.num_threads` counts the threads of this rank alone.
  // `communicator` is null where there is no other rank.
  explicit CpuDevice(const CpuOptions& options, Rank rank = {},
                     std::shared_ptr<Communicator> communicator = nullptr);

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCpu; }
  [[nodiscard]] DeviceInfo info() const override;
  Memory allocate(int64_t bytes) override;
  Memory allocate_host(int64_t bytes) override;
  std::unique_ptr<AddressRange> reserve(int64_t bytes) override;
  std::unique_ptr<Stream> create_stream() override;
  std::unique_ptr<Event> create_event() override;
  [[nodiscard]] KernelTable& kernels() override { return kernels_; }
  [[nodiscard]] bool sets_up_late() const override { return options_.sets_up_late; }
  using Device::fill_random;
  void fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                   const MatrixPlace& at) override;
  double read_bandwidth() override;
  // Measures the bandwidth of reading `bytes` bytes again and again. Bytes that fit the caches are
  // read from the caches.
  double read_bandwidth(int64_t bytes);
  // Measures the operations per second of all threads together, on numbers that lie in their
  // caches. No product of matrices can be faster.
  double flops_per_s();
  [[nodiscard]] Tuner& tuner() override { return tuner_; }
  // Creates a tracer. On a device that shuffles launches, it sees only replays and launches that
  // run at once.
  std::unique_ptr<Tracer> create_tracer(TraceDetail detail) override;

  [[nodiscard]] Rank rank() const override { return rank_; }
  [[nodiscard]] std::shared_ptr<Communicator> communicator() const override {
    return communicator_;
  }
  [[nodiscard]] std::span<const std::shared_ptr<Device>> peers() const override { return peers_; }
  void add_peer(std::shared_ptr<Device> peer) { peers_.push_back(std::move(peer)); }

  [[nodiscard]] Pool& pool() { return pool_; }
  // Says that a launch has run, so that ranks that wait for this rank keep waiting.
  void beat() const {
    if (communicator_) communicator_->beat(rank_.index);
  }

 private:
  CpuOptions options_;
  Rank rank_;
  std::shared_ptr<Communicator> communicator_;
  std::vector<std::shared_ptr<Device>> peers_;
  Pool pool_;
  KernelTable kernels_;
  CpuTracer::Running tracer_ = nullptr;
  Tuner tuner_{{{"device", "CPU"}}, create_launch_timer(*this, 0)};
};

}  // namespace encore::cpu
