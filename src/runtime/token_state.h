// Writes the state that the device keeps of sequences whose logits are adjusted: how often each
// token occurs in the sequence, and the biases of tokens. Each such sequence has a row, which the
// caller assigns.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "backend/sampling.h"
#include "ir/graph.h"
#include "runtime/host_launch.h"
#include "runtime/persistent_buffers.h"

namespace encore::runtime {

// Writes the rows of the token state. Threads: one. Lifetime: refers to the memory of `persistent`.
class TokenState {
 public:
  // Writes to the persistent buffers `token_counts` and `token_bias` of a graph. Where the graph
  // lacks them, the token state has no rows. `max_seq_len` is the most tokens that a sequence has.
  // Errors: kMemory; kUnsupported when the device has no kernel for `write_token_state`.
  TokenState(Device& device, const PersistentBuffers& persistent, int64_t max_seq_len);

  [[nodiscard]] int64_t num_rows() const { return num_rows_; }
  // Sets row `row` to these tokens and biases, for the steps launched after the next write().
  // Enqueues a write where the memory for values that are not written yet is full. REQUIRES: at
  // most max_seq_len tokens and kMaxTokenBias biases.
  void set(int32_t row, std::span<const int32_t> prompt, std::span<const int32_t> generated,
           std::span<const TokenBias> biases, Stream& stream);
  // A function that is called at each call of set().
  using Listener =
      std::function<void(int32_t row, std::span<const int32_t> prompt,
                         std::span<const int32_t> generated, std::span<const TokenBias> biases)>;
  void listen(Listener listener) { listener_ = std::move(listener); }
  // Enqueues the launch that writes the rows that were set, if there are any.
  void write(Stream& stream);
  // Enqueues a launch that changes nothing, so that the device sets up what it sets up at a first
  // launch.
  void warm_up(Stream& stream);

 private:
  int64_t num_rows_ = 0;
  HostLaunch launch_;
  Listener listener_;
  size_t num_used_ = 0;  // entries used of the memory for values
};

}  // namespace encore::runtime
