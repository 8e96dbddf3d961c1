// The ranks of a model share one communicator. A rank waits for the others in its meetings, and a
// rank that fails ends all ranks through it.
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

// Lets the ranks meet. All ranks call the meetings in the same order. A meeting ends when all ranks
// have come. It ends with an error once a rank has failed, or once a missing rank has done nothing
// for the whole timeout. Threads: each rank calls from one thread at a time.
class Communicator {
 public:
  using Bytes = std::span<const std::byte>;

  Communicator(int size, std::chrono::milliseconds timeout);

  [[nodiscard]] int size() const { return static_cast<int>(seats_.size()); }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

  // Holds one meeting: `write` fills this rank's bytes, and `read` gets the bytes of all ranks, in
  // rank order, once all have come. `what` names the meeting, and must be the same on all ranks.
  // Errors: kDevice where a rank is missing; where a rank has failed, its error, naming the rank
  // and `what`.
  void exchange(int rank, const std::string& what, int64_t bytes,
                const std::function<void(std::byte* to)>& write,
                const std::function<void(std::span<const Bytes> all)>& read);
  // Holds a meeting in which each rank gives a text. Returns the texts of all ranks, in rank order.
  std::vector<std::string> exchange(int rank, const std::string& what, std::string_view text);

  // Notes that the rank has done something, so that ranks which wait for it go on waiting.
  void beat(int rank) {
    seats_[static_cast<size_t>(rank)].beats.fetch_add(1, std::memory_order_relaxed);
  }

  // Notes that the rank has failed. Every meeting ends with this error from now on. Only the first
  // failure counts.
  void fail(int rank, ErrorKind kind, std::string_view why) noexcept;
  // Notes that the other ranks gave the rank up, after it had not come to the meeting `what` for
  // the time `waited`.
  void give_up(int rank, const std::string& what, std::chrono::milliseconds waited) noexcept;
  // Throws if a rank has failed. Errors: as exchange().
  void check() const;
  // Returns the rank that has failed. Absent where none has.
  [[nodiscard]] std::optional<int> failed_rank() const;

  // The right of one model to use the communicator. Only one model may meet in a communicator at a
  // time, since two would mistake each other's meetings for their own. Rank 0 of a model holds it
  // as long as the model lives. Errors: kUsage where another model holds it; the error of a rank
  // that has failed.
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
  // The bytes that a rank gave to one meeting. The communicator keeps those of two meetings for
  // each rank, since a rank may write the bytes of one meeting while slow ranks still read those of
  // the meeting before.
  struct Given {
    std::string what;
    std::vector<std::byte> bytes;
  };
  struct Seat {
    uint64_t num_meetings = 0;  // meetings that the rank has come to
    std::array<Given, 2> given;
    std::atomic<uint64_t> beats{0};
  };
  struct Failure {
    int rank;
    ErrorKind kind;
    std::string message;
  };

  // Waits until all ranks have come to the meeting number `meeting`. REQUIRES: the mutex is held.
  void wait_for_all(std::unique_lock<std::mutex>& lock, uint64_t meeting, const std::string& what);
  // Returns the first rank that has not come to the meeting, or -1 where all have.
  [[nodiscard]] int missing(uint64_t meeting) const;
  [[nodiscard]] uint64_t beats_of_missing(uint64_t meeting) const;
  void fail_locked(int rank, ErrorKind kind, std::string_view why);
  [[noreturn]] void throw_failure() const;

  std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Seat> seats_;  // indexed by rank
  std::optional<Failure> failure_;
  std::atomic<bool> in_use_ = false;
};

}  // namespace encore
