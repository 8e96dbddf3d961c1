// Writes the state that the device keeps of sequences whose logits are adjusted: how often each has
// a token, and its biases. Each such sequence has a row; the caller knows which.
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
  // For a graph with the persistent buffers `token_counts` and `token_bias`; for any other it has
  // no rows. `max_seq_len` is the most tokens that a sequence has. Errors: kMemory; kUnsupported
  // when the device has no kernel for `write_token_state`.
  TokenState(Device& device, const PersistentBuffers& persistent, int64_t max_seq_len);

  [[nodiscard]] int64_t num_rows() const { return num_rows_; }
  // Sets row `row` to these tokens and biases, for the steps launched behind the next write().
  // Enqueues a write where the memory for values that are not written yet is full. REQUIRES: at
  // most max_seq_len tokens and kMaxTokenBias biases.
  void set(int32_t row, std::span<const int32_t> prompt, std::span<const int32_t> generated,
           std::span<const TokenBias> biases, Stream& stream);
  // Is told of each call of set().
  using Listener =
      std::function<void(int32_t row, std::span<const int32_t> prompt,
                         std::span<const int32_t> generated, std::span<const TokenBias> biases)>;
  void listen(Listener listener) { listener_ = std::move(listener); }
  // Enqueues what was set, if anything was.
  void write(Stream& stream);
  // Enqueues a write that changes nothing, so that anything the device sets up at a first launch is
  // set up.
  void warm_up(Stream& stream);

 private:
  int64_t num_rows_ = 0;
  HostLaunch launch_;
  Listener listener_;
  size_t num_used_ = 0;  // of the memory for values
};

}  // namespace encore::runtime
