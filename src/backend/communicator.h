// The ranks of a model share a communicator: they wait for each other there, and one that fails ends
// all through it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace encore {

// Ranks meet in the same order on every rank. A wait ends when all have come; it ends with an error
// once a rank has failed, or once a rank that is missing has done nothing for the whole timeout.
// Threads: each rank calls from one thread at a time.
class Communicator {
 public:
  using Bytes = std::span<const std::byte>;

  Communicator(int size, std::chrono::milliseconds timeout);

  [[nodiscard]] int size() const { return static_cast<int>(seats_.size()); }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

  // One meeting: `write` fills the rank's own bytes, and `read` sees those of all ranks, in rank
  // order, once all have come. `what` names the meeting, and must be the same on all ranks.
  // Errors: kDevice, or what a failed rank failed with, naming that rank and `what`.
  void exchange(int rank, const std::string& what, int64_t bytes,
                const std::function<void(std::byte* to)>& write,
                const std::function<void(std::span<const Bytes> all)>& read);
  // A meeting in which each rank tells the others a text: those of all ranks, in rank order.
  std::vector<std::string> exchange(int rank, const std::string& what, std::string_view text);

  // The rank has done something: whoever waits for it waits on.
  void beat(int rank) {
    seats_[static_cast<size_t>(rank)].beats.fetch_add(1, std::memory_order_relaxed);
  }

  // The rank ends, and so does every meeting from now on. The first reason counts.
  void fail(int rank, ErrorKind kind, std::string_view why) noexcept;
  // The rank has not come to `what` for so long that the others gave it up.
  void give_up(int rank, const std::string& what, std::chrono::milliseconds waited) noexcept;
  // Has a rank failed? Errors: as exchange().
  void check() const;
  // The rank that has failed. Absent: none has.
  [[nodiscard]] std::optional<int> failed_rank() const;

  // One model meets here at a time: two would take each other's meetings for their own. Rank 0 of a model holds
  // its use as long as it lives. Errors: kUsage where another model has it; what a rank has failed with.
  class Use {
   public:
    explicit Use(Communicator& communicator);
    ~Use() { communicator_.in_use_.store(false); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Communicator& communicator_;
  };

 private:
  // A rank writes the bytes of one meeting while slow ones still read those of the meeting before.
  struct Given {
    std::string what;
    std::vector<std::byte> bytes;
  };
  struct Seat {
    uint64_t num_meetings = 0;  // that it has come to
    std::array<Given, 2> given;
    std::atomic<uint64_t> beats{0};
  };
  struct Failure {
    int rank;
    ErrorKind kind;
    std::string message;
  };

  // Waits, with the mutex held, until all ranks have come to the meeting of that number.
  void wait_for_all(std::unique_lock<std::mutex>& lock, uint64_t meeting, const std::string& what);
  // The first rank that has not come to the meeting; -1: all have.
  [[nodiscard]] int missing(uint64_t meeting) const;
  [[nodiscard]] uint64_t beats_of_missing(uint64_t meeting) const;
  void fail_locked(int rank, ErrorKind kind, std::string_view why);
  [[noreturn]] void throw_failure() const;

  std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Seat> seats_;  // by rank
  std::optional<Failure> failure_;
  std::atomic<bool> in_use_ = false;
};

}  // namespace encore
