#include "backend/communicator.h"

#include <algorithm>
#include <cstring>

namespace encore {

Communicator::Communicator(int size, std::chrono::milliseconds timeout)
    : timeout_(timeout), seats_(static_cast<size_t>(size)) {}

void Communicator::exchange(int rank, const std::string& what, int64_t bytes,
                            const std::function<void(std::byte*)>& write,
                            const std::function<void(std::span<const Bytes>)>& read) {
  Seat& own = seats_[static_cast<size_t>(rank)];
  // Only the rank itself changes its number of meetings. The memory of the bytes that it gave two
  // meetings ago may be overwritten now: the ranks that read those bytes have since come to the
  // last meeting, or this one would not begin.
  const uint64_t meeting = own.num_meetings + 1;
  const size_t place = meeting % 2;
  Given& given = own.given[place];
  given.what = what;
  given.bytes.resize(static_cast<size_t>(bytes));
  write(given.bytes.data());
  {
    std::unique_lock lock(mutex_);
    own.num_meetings = meeting;
    changed_.notify_all();
    wait_for_all(lock, meeting, what);
  }
  std::vector<Bytes> all;
  for (size_t other = 0; other < seats_.size(); ++other) {
    const Given& theirs = seats_[other].given[place];
    if (theirs.what != what) {
      fail(
          rank, ErrorKind::kDevice,
          fmt::format("it came to {} where rank {} came to {}: the ranks do not run the same steps",
                      what, other, theirs.what));
      check();
    }
    all.emplace_back(theirs.bytes);
  }
  read(all);
}

std::vector<std::string> Communicator::exchange(int rank, const std::string& what,
                                                std::string_view text) {
  std::vector<std::string> texts;
  exchange(
      rank, what, std::ssize(text),
      [&](std::byte* to) {
        if (!text.empty()) std::memcpy(to, text.data(), text.size());
      },
      [&](std::span<const Bytes> all) {
        for (const Bytes& bytes : all)
          texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      });
  return texts;
}

void Communicator::fail(int rank, ErrorKind kind, std::string_view why) noexcept {
  const std::lock_guard lock(mutex_);
  const Seat& own = seats_[static_cast<size_t>(rank)];
  if (own.num_meetings == 0) return fail_locked(rank, kind, why);
  fail_locked(rank, kind, fmt::format("behind {}, {}", own.given[own.num_meetings % 2].what, why));
}

void Communicator::give_up(int rank, const std::string& what,
                           std::chrono::milliseconds waited) noexcept {
  const std::lock_guard lock(mutex_);
  fail_locked(rank, ErrorKind::kDevice,
              fmt::format("it has not come to {} for {:g} s, and the others waited for it there",
                          what, std::chrono::duration<double>(waited).count()));
}

void Communicator::fail_locked(int rank, ErrorKind kind, std::string_view why) {
  if (failure_) return;
  failure_ = {rank, kind, fmt::format("rank {} of {} failed: {}", rank, size(), why)};
  changed_.notify_all();
}

void Communicator::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw_failure();
}

std::optional<int> Communicator::failed_rank() const {
  const std::lock_guard lock(mutex_);
  return failure_ ? std::optional(failure_->rank) : std::nullopt;
}

Communicator::Use::Use(Communicator& communicator) : communicator_(communicator) {
  communicator_.check();
  if (communicator_.in_use_.exchange(true)) {
    encore::fail(ErrorKind::kUsage,
                 "the {} ranks of this device compute another model, and one model has them at a "
                 "time: create a device of its own for this one, or end the other first",
                 communicator_.size());
  }
}

void Communicator::throw_failure() const {
  throw Error(failure_->kind, failure_->message);
}

void Communicator::wait_for_all(std::unique_lock<std::mutex>& lock, uint64_t meeting,
                                const std::string& what) {
  constexpr int kLooks = 8;  // looks at the missing ranks' beats during one timeout
  using Clock = std::chrono::steady_clock;
  uint64_t beats = beats_of_missing(meeting);
  Clock::time_point silent_since = Clock::now();
  while (!failure_ && missing(meeting) >= 0) {
    changed_.wait_for(lock, std::max(timeout_ / kLooks, std::chrono::milliseconds(1)));
    const uint64_t beats_now = beats_of_missing(meeting);
    const Clock::time_point now = Clock::now();
    if (beats_now != beats) silent_since = now;
    beats = beats_now;
    const int silent = missing(meeting);
    if (failure_ || silent < 0 || now - silent_since < timeout_) continue;
    fail_locked(silent, ErrorKind::kDevice,
                fmt::format("it has done nothing for {:g} s, and the others wait for it at {}",
                            std::chrono::duration<double>(timeout_).count(), what));
  }
  // A meeting to which all ranks have come succeeds, even if a rank has failed since.
  if (missing(meeting) >= 0) {
    if (failure_->message.find(what) != std::string::npos) throw_failure();
    throw Error(failure_->kind, fmt::format("{}; the others were at {}", failure_->message, what));
  }
}

int Communicator::missing(uint64_t meeting) const {
  const auto found =
      std::ranges::find_if(seats_, [&](const Seat& seat) { return seat.num_meetings < meeting; });
  return found == seats_.end() ? -1 : static_cast<int>(found - seats_.begin());
}

uint64_t Communicator::beats_of_missing(uint64_t meeting) const {
  uint64_t beats = 0;
  for (const Seat& seat : seats_) {
    if (seat.num_meetings < meeting) beats += 1 + seat.beats.load(std::memory_order_relaxed);
  }
  return beats;
}

}  // namespace encore
