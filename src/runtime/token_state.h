// What the device keeps of the sequences whose logits are adjusted: how often each has a token, and
// its biases. A row a sequence; who has which row, the caller knows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "backend/sampling.h"
#include "ir/graph.h"
#include "runtime/host_launch.h"
#include "runtime/persistent_buffers.h"

namespace encore::runtime {

// Threads: one. Lifetime: refers to the memory of `persistent`.
class TokenState {
 public:
  // Of a graph with the persistent buffers `token_counts` and `token_bias`; of any other, it has no
  // rows. `max_seq_len`: tokens that a sequence has at most.
  // Errors: kMemory; kUnsupported when the device has no kernel for `write_token_state`.
  TokenState(Device& device, const PersistentBuffers& persistent, int64_t max_seq_len);

  [[nodiscard]] int64_t num_rows() const { return num_rows_; }
  // Row `row` is that of these tokens and biases, for the steps launched behind the next write().
  // Enqueues a write where the memory for what is to be written is full.
  // REQUIRES: at most max_seq_len tokens and kMaxTokenBias biases.
  void set(int32_t row, std::span<const int32_t> prompt, std::span<const int32_t> generated,
           std::span<const TokenBias> biases, Stream& stream);
  // Is told of each call of set().
  using Listener =
      std::function<void(int32_t row, std::span<const int32_t> prompt,
                         std::span<const int32_t> generated, std::span<const TokenBias> biases)>;
  void listen(Listener listener) { listener_ = std::move(listener); }
  // Enqueues what was set, if anything was.
  void write(Stream& stream);
  // Enqueues a write that changes nothing: what a device sets up at a first launch is set up.
  void warm_up(Stream& stream);

 private:
  int64_t num_rows_ = 0;
  HostLaunch launch_;
  Listener listener_;
  size_t num_used_ = 0;  // of the memory for values
};

}  // namespace encore::runtime
