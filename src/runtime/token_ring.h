// Reads the tokens that steps publish, from memory that host and device both see. Nothing is
// copied, and no call waits for the device: the device writes the tokens of a step, and then
// increments the count of published steps. `advance` in ops.cc describes the device's side.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "backend/advance.h"
#include "backend/sampling.h"
#include "ir/graph.h"
#include "runtime/persistent_buffers.h"

namespace encore::runtime {

// The number of a step, in the order of launches. Numbers wrap around, so compare them by
// is_before() only.
using StepNumber = uint32_t;
constexpr bool is_before(StepNumber a, StepNumber b) {
  return static_cast<int32_t>(a - b) < 0;
}

// Reads the ring of the last steps' tokens. Threads: any. Lifetime: refers to the memory of
// `persistent`.
class TokenRing {
 public:
  // Reads the ring of a graph that ends with `advance`; the ring of any other graph never has a
  // published step.
  explicit TokenRing(const PersistentBuffers& persistent)
      : ring_(persistent.find("token_ring")),
        logprobs_(persistent.find("logprob_ring")),
        marks_(persistent.find("ring_marks").as<int32_t>()) {}

  // Returns the number of the first step that is not published yet.
  [[nodiscard]] StepNumber published() const {
    if (marks_ == nullptr) return 0;
    return static_cast<StepNumber>(
        std::atomic_ref(marks_[advance_op::kPublished]).load(std::memory_order_acquire));
  }
  // Returns the tokens of a published step, one for each row of logits, padding rows included. A
  // token is -1 where a draft was wrong. The tokens stay readable until capacity() later steps have
  // been launched.
  [[nodiscard]] std::span<const int32_t> tokens(StepNumber step) const {
    ENCORE_CHECK(is_before(step, published()), "step {} is not published", step);
    const int64_t rows = ring_.shape[1];
    return {ring_.as<int32_t>() + step % ring_.shape[0] * rows, static_cast<size_t>(rows)};
  }
  // Returns the tokens that a published step gave the sequence in row `row` of the batch. Each
  // sequence has `rows_each` rows of logits. Wrong drafts are left out.
  [[nodiscard]] std::span<const int32_t> span(StepNumber step, int64_t row,
                                              int64_t rows_each) const {
    const auto all =
        tokens(step).subspan(static_cast<size_t>(row * rows_each), static_cast<size_t>(rows_each));
    return {all.begin(), std::ranges::find(all, -1)};
  }
  // Returns the log probabilities of the token that one row of logits of a published step chose, as
  // far as the row's sequence asked for them. They stay readable as long as the tokens of the step.
  [[nodiscard]] const LogprobRow& logprobs(StepNumber step, int64_t row) const {
    ENCORE_CHECK(logprobs_.data != nullptr && is_before(step, published()));
    return logprobs_.as<const LogprobRow>()[step % logprobs_.shape[0] * logprobs_.shape[1] + row];
  }
  // Lets bursts run until `step` is the next step to run, or until all sequences have ended.
  void run_until(StepNumber step) {
    ENCORE_CHECK(marks_ != nullptr, "a program that publishes nothing has no bursts");
    std::atomic_ref(marks_[advance_op::kRunUntil])
        .store(static_cast<int32_t>(step), std::memory_order_release);
  }
  [[nodiscard]] int64_t capacity() const { return ring_.shape.rank() == 0 ? 0 : ring_.shape[0]; }

 private:
  TensorView ring_;           // i32[E,M]
  TensorView logprobs_;       // i32[E,M,W]: logprob_ring
  int32_t* marks_ = nullptr;  // ring_marks
};

}  // namespace encore::runtime
