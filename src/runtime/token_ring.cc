#include "runtime/token_ring.h"

#include <atomic>

#include "backend/advance.h"

namespace encore::runtime {

TokenRing::TokenRing(const ir::Graph& graph, const PersistentBuffers& persistent) {
  const auto ring = graph.find_value("token_ring");
  const auto marks = graph.find_value("ring_marks");
  if (!ring || !marks) return;
  ring_ = persistent.view(*ring);
  marks_ = persistent.view(*marks).as<int32_t>();
  if (const auto logprobs = graph.find_value("logprob_ring"))
    logprobs_ = persistent.view(*logprobs);
}

StepNumber TokenRing::published() const {
  if (marks_ == nullptr) return 0;
  return static_cast<StepNumber>(
      std::atomic_ref(marks_[advance_op::kPublished]).load(std::memory_order_acquire));
}

std::span<const int32_t> TokenRing::tokens(StepNumber step) const {
  ENCORE_CHECK(is_before(step, published()), "step {} is not published", step);
  const int64_t rows = ring_.shape[1];
  return {ring_.as<int32_t>() + step % ring_.shape[0] * rows, static_cast<size_t>(rows)};
}

const LogprobRow& TokenRing::logprobs(StepNumber step, int64_t row) const {
  ENCORE_CHECK(logprobs_.data != nullptr && is_before(step, published()));
  return logprobs_.as<const LogprobRow>()[step % logprobs_.shape[0] * logprobs_.shape[1] + row];
}

void TokenRing::run_until(StepNumber step) {
  ENCORE_CHECK(marks_ != nullptr, "a program that publishes nothing has no bursts");
  std::atomic_ref(marks_[advance_op::kRunUntil])
      .store(static_cast<int32_t>(step), std::memory_order_release);
}

}  // namespace encore::runtime
