// The GPUs of a model's ranks exchange data in memory that each can write (backend/push.h), and their
// waits end by a deadline.
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

// Shared by the devices of all ranks. Threads: any.
class Exchange {
 public:
  // Allocates every rank's memory on its GPU, sees that each GPU's stores arrive at every other, and
  // leaves all places empty. `timeout` is how long a GPU waits for another.
  // Errors: kUnsupported naming two GPUs that do not reach each other, with the remedy; kMemory.
  Exchange(const std::vector<int>& ordinals, std::shared_ptr<Communicator> communicator,
           std::chrono::milliseconds timeout);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  // Exchange memory of that rank's GPU. Every GPU can write it.
  [[nodiscard]] push::Vector* memory(int rank) const;
  // The word in host memory in which the rank's GPU says that it has waited too long (failure_word), and
  // which ends its waits where it is not 0.
  [[nodiscard]] uint32_t* failure(int rank) const;

  // Gives a call a number. Messages about it say `what`.
  uint32_t add_call(std::string what);

  // Ends all ranks where the rank's GPU has waited too long, and its waits where any has failed.
  // Errors: what the failed rank has failed with.
  void check(int rank);

 private:
  void require_transfers(const std::vector<int>& ordinals);

  std::shared_ptr<Communicator> communicator_;  // shared with the threads of all ranks
  std::chrono::milliseconds timeout_;
  std::vector<std::unique_ptr<AddressRange>> memories_;  // by rank
  Memory failures_;                                      // a word each, apart from each other
  std::mutex mutex_;
  std::vector<std::string> calls_;
};

// One line for each two GPUs: can either write the other's memory?
std::vector<Finding> find_peers(int num_devices);

// collectives.cu: stores the words of a pattern, which depends on `seed`, and compares on the host.
void launch_pattern(Stream& stream, void* device, uint32_t seed, int64_t num_words);
uint32_t pattern_word(uint32_t seed, int64_t index);

}  // namespace encore::cuda
