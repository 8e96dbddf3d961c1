// The slots on the device that hold adapters: they are handed out, filled in the background, and taken back from
// the adapters whose use is the longest ago.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loader/adapter.h"

namespace encore::loader {

// An adapter in a slot, or on its way to one. No other adapter gets the slot while somebody has this: a
// sequence from when it asks for it until it ends or loses its pages, and each step in flight.
// Threads: any.
class ResidentAdapter {
 public:
  enum class State : uint8_t { kAwaited, kThere, kFailed };

  explicit ResidentAdapter(std::shared_ptr<const Adapter> adapter) : adapter_(std::move(adapter)) {}

  [[nodiscard]] State state() const { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] const std::shared_ptr<const Adapter>& adapter() const { return adapter_; }
  // REQUIRES: the state is kThere, or was.
  [[nodiscard]] int32_t slot() const { return slot_; }
  // Says why the load failed. REQUIRES: kFailed.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  friend class AdapterSlots;
  void arrive(int32_t slot);
  void give_up(std::string problem);

  std::shared_ptr<const Adapter> adapter_;
  int32_t slot_ = -1;
  std::string problem_;
  std::atomic<State> state_ = State::kAwaited;
};

struct AdapterSlotStats {
  int64_t num_resident = 0;   // adapters in slots
  int64_t num_awaited = 0;    // adapters that somebody waits for
  int64_t num_loads = 0;      // of adapters to slots
  int64_t num_failures = 0;   // of those
  int64_t num_evictions = 0;  // of adapters from slots
  int64_t num_waits = 0;      // times that somebody had to wait for an adapter
};

// Threads: take() and those below it are the engine's; the rest is for any.
class AdapterSlots {
 public:
  // Writes an adapter to a slot; the device has it when it returns. Errors: any; they end those who wait.
  // Threads: several at a time.
  using Load = std::function<void(const Adapter& adapter, int32_t slot)>;
  // The order of those who wait: the least comes first.
  using Order = std::pair<int64_t, int64_t>;

  AdapterSlots(int64_t num_slots, Load load);
  // Waits for the end of loads.
  ~AdapterSlots();
  AdapterSlots(const AdapterSlots&) = delete;
  AdapterSlots& operator=(const AdapterSlots&) = delete;

  // Gives whoever asks the adapter, which is there or comes to a slot in the background. A slot that nobody
  // uses goes to the first who waits. Where all are in use, a few of them, whose last user came the longest
  // ago, take no more users, so that everybody's turn comes. Null: the adapter is in one of those; ask
  // again later.
  std::shared_ptr<const ResidentAdapter> take(const std::shared_ptr<const Adapter>& adapter,
                                              const Order& order);
  // Gives slots that nobody uses any more to those who wait.
  void hand_out();
  // Waits until a load has ended since the last call, or so long.
  void wait(std::chrono::milliseconds most);
  // Changes when adapters failed.
  [[nodiscard]] int64_t num_failures() const { return num_failures_; }

  // The memory of the slots is about to be given back. Waits for the end of loads.
  void pause();
  // It is there again, and holds anything: loads adapters that somebody has again, and forgets the others.
  void resume();

  // An adapter that is loaded at once. Errors: those of loading it.
  void put(std::shared_ptr<const Adapter> adapter, int32_t slot);

  [[nodiscard]] int64_t num_slots() const { return std::ssize(slots_); }
  [[nodiscard]] AdapterSlotStats stats() const;

 private:
  struct Slot {
    std::shared_ptr<const Adapter> adapter;  // null: none
    std::weak_ptr<ResidentAdapter> users;    // what they share
    bool is_loading = false;
    uint64_t last_taken = 0;

    [[nodiscard]] bool is_used() const { return is_loading || !users.expired(); }
  };
  struct Job {
    std::shared_ptr<ResidentAdapter> resident;
    int32_t slot = 0;
  };

  // With the mutex held:
  // Gives slots that nobody uses to those who wait.
  void assign();
  [[nodiscard]] std::optional<int32_t> unused_slot() const;
  // Does the slot take no more users?
  [[nodiscard]] bool is_closing(const Slot& slot) const;
  void empty(Slot& slot);
  std::shared_ptr<ResidentAdapter> give(int32_t slot);
  void finish(Job& job, const std::optional<std::string>& problem);

  void load_jobs();

  Load load_;
  mutable std::mutex mutex_;
  std::condition_variable jobs_come_;
  std::condition_variable loads_end_;
  std::vector<Slot> slots_;
  std::unordered_map<int64_t, int32_t> slot_of_;  // by the generation of the adapter in it
  std::map<Order, std::weak_ptr<ResidentAdapter>> awaited_;
  std::deque<Job> jobs_;
  int64_t num_loading_ = 0;
  int64_t num_ended_ = 0;  // loads
  int64_t num_seen_ = 0;   // of those, when wait() returned
  uint64_t clock_ = 0;
  bool is_paused_ = true;
  bool is_stopping_ = false;
  AdapterSlotStats counts_;
  std::atomic<int64_t> num_failures_ = 0;
  std::vector<std::thread> loaders_;
};

}  // namespace encore::loader
