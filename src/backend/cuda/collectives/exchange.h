// Provides the memory through which the GPUs of a model's ranks exchange data (backend/push.h).
// Every GPU can write to it. Each wait for another GPU ends at a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/communicator.h"
#include "backend/device.h"
#include "backend/push.h"

namespace encore::cuda {

// The exchange memory and the failure words of all ranks. The devices of all ranks share one
// object. Threads: any.
class Exchange {
 public:
  // Allocates every rank's memory on its GPU, checks that each GPU's stores arrive at every other
  // GPU, and leaves all places empty. `timeout` is how long a GPU waits for another.
  // Errors: kUnsupported naming two GPUs that cannot reach each other, with the remedy; kMemory.
  Exchange(const std::vector<int>& ordinals, std::shared_ptr<Communicator> communicator,
           std::chrono::milliseconds timeout);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  // Returns the exchange memory on the GPU of `rank`. Every GPU can write to it.
  [[nodiscard]] push::Vector* memory(int rank) const;
  // Returns the word in host memory through which the rank's GPU reports that it has waited too
  // long (failure_word). Any value but 0 ends the waits of that GPU.
  [[nodiscard]] uint32_t* failure(int rank) const;

  // Returns a number for a new call of a collective. Error messages name the call by `what`.
  uint32_t add_call(std::string what);

  // Makes all ranks fail if the GPU of `rank` has waited too long. If any rank has failed, ends the
  // waits of all GPUs and throws.
  // Errors: the error with which the failed rank failed.
  void check(int rank);

 private:
  void require_transfers(const std::vector<int>& ordinals);

  std::shared_ptr<Communicator> communicator_;  // shared with the threads of all ranks
  std::chrono::milliseconds timeout_;
  std::vector<std::unique_ptr<AddressRange>> memories_;  // by rank
  Memory failures_;  // one word for each rank, in cache lines of its own
  std::mutex mutex_;
  std::vector<std::string> calls_;
};

// Returns one line for each pair of GPUs: whether each of the two can write the other's memory.
std::vector<Finding> find_peers(int num_devices);

// Defined in collectives.cu. Stores words of a pattern that depends on `seed`, so that the host can
// compare them with pattern_word().
void launch_pattern(Stream& stream, void* device, uint32_t seed, int64_t num_words);
uint32_t pattern_word(uint32_t seed, int64_t index);

}  // namespace encore::cuda
