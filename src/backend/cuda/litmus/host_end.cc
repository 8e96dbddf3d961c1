#include "backend/cuda/litmus/host_end.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "backend/cpu/pool.h"

namespace encore::cuda::litmus {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLimit{8};  // longer than the GPU's limit
constexpr unsigned kMaxThreads = 6;
constexpr uint32_t kWriter = 0;

uint32_t acquire(uint32_t* cell) {
  return std::atomic_ref(*cell).load(std::memory_order_acquire);
}
void release(uint32_t* cell, uint32_t value) {
  std::atomic_ref(*cell).store(value, std::memory_order_release);
}

// Plays the host's role for a share of the groups, on one thread.
class HostEnd {
 public:
  HostEnd(const Field& field, int flags, uint32_t first, uint32_t end)
      : field_(field), flags_(static_cast<uint32_t>(flags)), first_(first), end_(end) {}

  void play() {
    const auto deadline = Clock::now() + kLimit;
    const bool reads = field_.gpu_role == kWriter;
    const uint32_t stride = reads ? 1 : flags_;
    std::vector<uint32_t> rounds(end_ - first_, 1);  // the current round of each group
    if (reads) {
      for (uint32_t group = first_; group < end_; ++group)
        release(line(field_, group, kReadyLine, 0), 1);
    }
    uint64_t left = uint64_t{(end_ - first_) / stride} * field_.rounds;
    while (left > 0) {
      for (uint32_t group = first_; group < end_; group += stride) {
        uint32_t& round = rounds[group - first_];
        if (round > field_.rounds) continue;
        if (!(reads ? read(group, round) : write(group, round))) continue;
        ++round;
        --left;
      }
      if (Clock::now() > deadline) {
        ++tally_.lost;
        return;
      }
    }
  }

  [[nodiscard]] const Tally& tally() const { return tally_; }

 private:
  // Reads the message of `round`, if it has come. Returns whether it has come.
  bool read(uint32_t group, uint32_t round) {
    if (acquire(line(field_, group, kFlagLine, 0)) != round) return false;
    bool is_stale = false;
    for (uint32_t k = 0; k < kNumWords; ++k)
      is_stale |=
          *word(field_, group - group % flags_, k, round % field_.slots) != message(round, k);
    tally_.stale += is_stale ? 1 : 0;
    ++tally_.rounds;
    if (round < field_.rounds) release(line(field_, group, kReadyLine, 0), round + 1);
    return true;
  }
  // Writes the message of `round`, if all its readers are ready. Returns whether they are.
  bool write(uint32_t group, uint32_t round) {
    for (uint32_t i = 0; i < flags_; ++i) {
      if (acquire(line(field_, group + i, kReadyLine, 0)) != round) return false;
    }
    for (uint32_t k = 0; k < kNumWords; ++k)
      *word(field_, group, k, round % field_.slots) = message(round, k);
    for (uint32_t i = 0; i < flags_; ++i)
      release(line(field_, group + i, kFlagLine, 0), round);
    return true;
  }

  Field field_;
  uint32_t flags_;
  uint32_t first_;
  uint32_t end_;
  Tally tally_{};
};

}  // namespace

void play_host_end(const Field& field, int flags, Tally& tally) {
  // A message has `flags` groups. Groups are divided among the threads so that no message's groups
  // go to two threads.
  const uint32_t messages = field.players / static_cast<uint32_t>(flags);
  const unsigned spare = std::max(2, cpu::num_usable_processors()) - 1;
  const uint32_t num_threads = std::min({spare, kMaxThreads, messages});
  std::vector<HostEnd> ends;
  for (uint32_t i = 0; i < num_threads; ++i) {
    const auto bound = [&](uint32_t part) {
      return static_cast<uint32_t>(uint64_t{messages} * part / num_threads) *
             static_cast<uint32_t>(flags);
    };
    ends.emplace_back(field, flags, bound(i), bound(i + 1));
  }
  {
    std::vector<std::jthread> threads;
    for (HostEnd& end : ends)
      threads.emplace_back([&end] { end.play(); });
  }
  for (const HostEnd& end : ends) {
    tally.rounds += end.tally().rounds;
    tally.stale += end.tally().stale;
    tally.lost += end.tally().lost;
  }
}

}  // namespace encore::cuda::litmus
