#include "backend/cuda/collectives/exchange.h"

#include <atomic>

#include "backend/cuda/device/context.h"
#include "backend/cuda/device/memory.h"
#include "backend/cuda/device/stream.h"

namespace encore::cuda {
namespace {

// The distance between the failure words of two ranks, in words. It gives each word cache lines of
// its own.
constexpr int64_t kFailureWords = 64;
constexpr int64_t kPatternBytes = 16 << 20;

bool reaches(int from, int to) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
  return can != 0;
}

[[noreturn]] void fail_transfer(int from, int to, std::string_view why) {
  fail(ErrorKind::kUnsupported,
       "GPU {} cannot write the memory of GPU {}{}: ranks exchange data so. `nvidia-smi topo -p2p "
       "w` shows "
       "which GPUs can; choose those by CUDA_VISIBLE_DEVICES, give a container all of them with "
       "their "
       "NVLink, or take --tensor-parallel 1",
       from, to, why);
}

}  // namespace

Exchange::Exchange(const std::vector<int>& ordinals, std::shared_ptr<Communicator> communicator,
                   std::chrono::milliseconds timeout)
    : communicator_(std::move(communicator)),
      timeout_(timeout),
      failures_(
          allocate_pinned_memory(ordinals.front(), std::ssize(ordinals) * kFailureWords * 4)) {
  for (int rank = 0; rank < std::ssize(ordinals); ++rank)
    std::atomic_ref(*failure(rank)).store(0);
  for (const int from : ordinals) {
    for (const int to : ordinals) {
      if (from != to && !reaches(from, to)) fail_transfer(from, to, "");
    }
  }
  for (const int ordinal : ordinals) {
    use_device(ordinal);
    cuda::check(cudaFree(nullptr), "starting CUDA");  // creates the context
  }
  constexpr int64_t kBytes = push::Memory{}.vectors() * push::kVectorBytes;
  for (const int ordinal : ordinals) {
    memories_.push_back(reserve_addresses(ordinal, kBytes, ordinals));
    memories_.back()->map(kBytes);
  }
  require_transfers(ordinals);
  for (size_t rank = 0; rank < ordinals.size(); ++rank) {
    CudaStream stream(ordinals[rank]);
    stream.fill(memories_[rank]->data(), push::kEmpty, kBytes);
    stream.synchronize();
  }
}

// Checks that stores between all GPUs arrive: each GPU writes to every other, because a driver may
// permit stores that never arrive.
void Exchange::require_transfers(const std::vector<int>& ordinals) {
  const int64_t num_words = kPatternBytes / 4;
  std::vector<uint32_t> words(static_cast<size_t>(num_words));
  uint32_t seed = 0;
  for (const int from : ordinals) {
    for (size_t rank = 0; rank < ordinals.size(); ++rank) {
      const int to = ordinals[rank];
      if (from == to) continue;
      ++seed;
      CudaStream writer(from);
      launch_pattern(writer, memories_[rank]->data(), seed, num_words);
      writer.synchronize();
      CudaStream reader(to);
      reader.copy_to_host(words.data(), memories_[rank]->data(), kPatternBytes);
      reader.synchronize();
      for (int64_t i = 0; i < num_words; ++i) {
        if (words[static_cast<size_t>(i)] == pattern_word(seed, i)) continue;
        fail_transfer(from, to, fmt::format(": word {} of {} arrived wrong", i, num_words));
      }
    }
  }
}

push::Vector* Exchange::memory(int rank) const {
  return reinterpret_cast<push::Vector*>(memories_[static_cast<size_t>(rank)]->data());
}

uint32_t* Exchange::failure(int rank) const {
  return reinterpret_cast<uint32_t*>(failures_.data()) + rank * kFailureWords;
}

uint32_t Exchange::add_call(std::string what) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(what));
  return static_cast<uint32_t>(calls_.size() - 1);
}

void Exchange::check(int rank) {
  const uint32_t word = std::atomic_ref(*failure(rank)).load(std::memory_order_acquire);
  if (word != 0 && word != push::kStopped) {
    const std::lock_guard lock(mutex_);
    communicator_->give_up(push::missing_rank(word), calls_[push::failed_call(word)], timeout_);
  }
  try {
    communicator_->check();
  } catch (const Error&) {
    // The other ranks will not come any more. Marking them as stopped spares each GPU the wait
    // until its deadline.
    for (int other = 0; other < std::ssize(memories_); ++other) {
      uint32_t none = 0;
      std::atomic_ref(*failure(other)).compare_exchange_strong(none, push::kStopped);
    }
    throw;
  }
}

std::vector<Finding> find_peers(int num_devices) {
  std::vector<Finding> findings;
  for (int from = 0; from < num_devices; ++from) {
    for (int to = from + 1; to < num_devices; ++to) {
      Finding finding{fmt::format("GPU {} and {}", from, to), "", ""};
      int can[2] = {};
      int native = 0;
      const bool known = cudaDeviceCanAccessPeer(&can[0], from, to) == cudaSuccess &&
                         cudaDeviceCanAccessPeer(&can[1], to, from) == cudaSuccess &&
                         cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported,
                                                   from, to) == cudaSuccess;
      cudaGetLastError();
      if (known && can[0] != 0 && can[1] != 0) {
        // Over PCIe, GPUs have no native atomics on each other's memory, so native atomics mean
        // NVLink.
        finding.found =
            fmt::format("write each other's memory, by {}", native != 0 ? "NVLink" : "PCIe");
      } else {
        finding.found = "do not reach each other's memory";
        finding.remedy = "--tensor-parallel needs GPUs that do: `nvidia-smi topo -p2p w`";
      }
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

}  // namespace encore::cuda
