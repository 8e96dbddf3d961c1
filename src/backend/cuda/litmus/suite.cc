// Launches the litmus tests. Chooses the number of groups, their places and the noise of each
// launch, and launches until enough rounds are done.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "backend/cuda/device/context.h"
#include "backend/cuda/device/device.h"
#include "backend/cuda/device/memory.h"
#include "backend/cuda/device/stream.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/litmus/host_end.h"
#include "backend/litmus.h"

namespace encore::cuda::litmus {
namespace {

using encore::litmus::Counts;
using encore::litmus::Form;
using encore::litmus::Price;
using Place = encore::litmus::Scope;

constexpr uint32_t kWarpSize = 32;
constexpr uint32_t kGpuLines = 1U << 18;   // 32 MB, which L2 holds
constexpr uint32_t kHostLines = 1U << 15;  // 4 MB
constexpr uint32_t kMaxRounds = 256;       // the most rounds of a group in one launch
constexpr uint32_t kPricedRounds = 2000;
constexpr int kNumPrices = 9;
constexpr uint32_t kHostBlocks = 64;  // blocks that hand messages to the host
constexpr uint32_t kHostWarps = 2;

std::span<const Row> rows(Place scope) {
  switch (scope) {
    case Place::kBlock:
      return block_rows();
    case Place::kCluster:
      return cluster_rows();
    case Place::kDevice:
      return device_rows();
    default:
      return system_rows();
  }
}

const Row& find_row(const Form& form) {
  for (const Row& row : rows(form.scope)) {
    if (row.name == form.name) return row;
  }
  check_failed(__FILE__, __LINE__, "a litmus form has a kernel", std::string(form.name));
}

// The numbers of blocks and of noisy warps of a launch.
struct Size {
  uint32_t blocks;
  uint32_t noisy_warps;
};

class CudaSuite final : public encore::litmus::Suite {
 public:
  CudaSuite()
      : device_(create_cuda_device()),
        stream_(static_cast<CudaDevice&>(*device_).ordinal()),
        memory_(device_->allocate(int64_t{2} * kGpuLines * kLineBytes)),
        host_memory_(device_->allocate_host(int64_t{2} * kHostLines * kLineBytes)),
        tally_(device_->allocate(sizeof(Tally))) {}

  [[nodiscard]] std::string chip() const override { return device_->info().name; }

  Counts stress(const Form& form, int64_t rounds, double seconds) override {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const Row& row = find_row(form);
    Counts counts;
    uint32_t launch = 0;
    do {
      Size size{};
      Field field = stress_field(form.scope, row, launch++, size);
      const int64_t left = std::max<int64_t>(rounds - counts.rounds, 1);
      field.rounds =
          static_cast<uint32_t>(std::clamp<int64_t>(div_up(left, field.players), 1, kMaxRounds));
      const Tally tally = run(form, row, field, size);
      counts.rounds += static_cast<int64_t>(tally.rounds);
      counts.stale += static_cast<int64_t>(tally.stale);
      counts.unseen += static_cast<int64_t>(tally.unseen);
    } while (counts.rounds < rounds &&
             std::chrono::duration<double>(Clock::now() - start).count() < seconds);
    return counts;
  }

  Price price(const Form& form) override {
    const Row& row = find_row(form);
    std::vector<Price> prices;
    for (uint32_t i = 0; i <= kNumPrices; ++i) {
      Size size{};
      const Field field = price_field(form.scope, row, i, size);
      const Tally tally = run(form, row, field, size);
      const double handoffs = static_cast<double>(field.rounds) * row.per_round;
      if (i > 0) {  // the first launch only warms up
        prices.push_back({static_cast<double>(tally.ns) / handoffs,
                          static_cast<double>(tally.cycles) / handoffs});
      }
    }
    std::sort(prices.begin(), prices.end(),
              [](const Price& a, const Price& b) { return a.ns < b.ns; });
    return prices[prices.size() / 2];
  }

 private:
  static constexpr int64_t kLineBytes = int64_t{kCellsPerLine} * 4;

  [[nodiscard]] uint32_t num_multiprocessors() const {
    return static_cast<uint32_t>(encore::cuda::chip(*device_).num_multiprocessors);
  }

  // Returns the field of a launch under stress, with as many groups as the chip runs at once.
  // Lines, distances and noise differ in each launch.
  Field stress_field(Place scope, const Row& row, uint32_t launch, Size& size) const {
    const auto roles = static_cast<uint32_t>(row.roles);
    Field field = empty_field(scope, launch);
    field.jitter = launch / kNumNoises % 2 == 1;
    field.lingers = true;
    if (scope == Place::kSystem) {
      size = {kHostBlocks, 0};
      field.warps = kHostWarps;
      field.players = kHostBlocks * kHostWarps * kWarpSize;
      field.gpu_role = launch % 2;
      return field;
    }
    size = {num_multiprocessors() / roles * roles, kNumNoisyWarps};
    field.warps = kNumPlayingWarps;
    field.players = size.blocks * field.warps * kWarpSize / roles;
    field.noise = static_cast<Noise>(launch % kNumNoises);
    return field;
  }

  // Returns the field of one message, or of one group of contenders, on an otherwise idle chip.
  // Each launch gives the group to other blocks.
  Field price_field(Place scope, const Row& row, uint32_t launch, Size& size) const {
    const auto roles = static_cast<uint32_t>(row.roles);
    Field field = empty_field(scope, launch);
    field.warps = scope == Place::kBlock ? roles : 1;
    field.players = static_cast<uint32_t>(row.flags);
    field.rounds = kPricedRounds;
    field.slots = field.num_lines / (kLinesPerGroup * field.players);  // no line is used twice
    size.blocks = scope == Place::kDevice    ? num_multiprocessors() / roles * roles
                  : scope == Place::kCluster ? roles
                                             : 1;
    return field;
  }

  [[nodiscard]] Field empty_field(Place scope, uint32_t launch) const {
    const bool on_host = scope == Place::kSystem;
    Field field{};
    field.cells = reinterpret_cast<uint32_t*>(on_host ? host_memory_.data() : memory_.data());
    field.num_lines = on_host ? kHostLines : kGpuLines;
    field.slots = 1;
    field.seed = launch * 0x9e3779b9U + 12345;
    field.shift = launch * 7;
    field.noise = Noise::kNone;
    return field;
  }

  // Runs one launch and returns its tally. Errors: kDevice when a launch fails or a thread waited
  // in vain.
  Tally run(const Form& form, const Row& row, const Field& field, const Size& size) {
    const std::string label = fmt::format("litmus {}.{}", name(form.scope), form.name);
    const OpScope scope(label);
    const bool with_host = form.scope == Place::kSystem;
    if (with_host) {
      std::memset(field.cells, 0, static_cast<size_t>(field.num_lines * kLineBytes));
    } else {
      stream_.fill(field.cells, 0, field.num_lines * kLineBytes);
    }
    stream_.fill(tally_.data(), 0, sizeof(Tally));
    launch(form.scope, row, field, size);
    Tally total{};
    if (with_host) play_host_end(field, row.flags, total);
    Tally tally{};
    stream_.copy_to_host(&tally, tally_.data(), sizeof(Tally));
    stream_.synchronize();
    tally.rounds += total.rounds;
    tally.stale += total.stale;
    tally.lost += total.lost;
    if (row.counts) tally.stale = std::max(tally.stale, lost_updates(row, field));
    if (tally.lost != 0) {
      fail(ErrorKind::kDevice, "{}: {} threads waited for a flag that never came", label,
           tally.lost);
    }
    return tally;
  }

  void launch(Place scope, const Row& row, const Field& field, const Size& size) {
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(size.blocks);
    config.blockDim = dim3((field.warps + size.noisy_warps) * kWarpSize);
    config.stream = stream_.get();
    config.attrs = attributes;
    if (scope == Place::kCluster) {
      attributes[0].id = cudaLaunchAttributeClusterDimension;
      attributes[0].val.clusterDim = {static_cast<unsigned>(row.roles), 1, 1};
      attributes[1].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
      attributes[1].val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
      config.numAttrs = 2;
    } else {
      // Blocks that wait for each other must all be resident, which a cooperative launch
      // guarantees.
      attributes[0].id = cudaLaunchAttributeCooperative;
      attributes[0].val.cooperative = 1;
      config.numAttrs = 1;
    }
    check(cudaLaunchKernelEx(&config, row.kernel, field, reinterpret_cast<Tally*>(tally_.data())),
          "cudaLaunchKernelEx");
  }

  // Returns how many additions got lost. In each round, every contender of a group adds one to the
  // group's first word, so the word should end as contenders times rounds.
  unsigned long long lost_updates(const Row& row, const Field& field) {
    std::vector<uint32_t> cells(size_t{field.num_lines} * kCellsPerLine);
    stream_.copy_to_host(cells.data(), field.cells, field.num_lines * kLineBytes);
    stream_.synchronize();
    Field copy = field;
    copy.cells = cells.data();
    unsigned long long lost = 0;
    for (uint32_t group = 0; group < field.players; ++group)
      lost += static_cast<uint32_t>(row.roles) * field.rounds - *word(copy, group, 0, 0);
    return lost;
  }

  std::unique_ptr<Device> device_;
  CudaStream stream_;
  Memory memory_;
  Memory host_memory_;
  Memory tally_;
};

}  // namespace
}  // namespace encore::cuda::litmus

namespace encore::litmus {

std::unique_ptr<Suite> open_suite() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    fail(ErrorKind::kDevice,
         "litmus tests run on a GPU, and CUDA finds none ({}): run on a machine with an H100 or "
         "H200 "
         "and a driver for CUDA 13 (`encore doctor` says what is there); --list works without",
         status == cudaSuccess ? "no device" : cudaGetErrorString(status));
  }
  return std::make_unique<cuda::litmus::CudaSuite>();
}

}  // namespace encore::litmus
