// Manages the adapter slots: the places in device memory that hold one adapter each. Assigns them
// to adapters, fills them in the background, and evicts the least recently used adapters.
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

// An adapter that is in an adapter slot, or on its way to one. No other adapter gets the slot while
// this object is held. A sequence holds it from the time it asks for the adapter until it ends or
// loses its pages; each step in flight holds it too. Threads: any.
class ResidentAdapter {
 public:
  enum class State : uint8_t { kAwaited, kThere, kFailed };

  explicit ResidentAdapter(std::shared_ptr<const Adapter> adapter) : adapter_(std::move(adapter)) {}

  [[nodiscard]] State state() const { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] const std::shared_ptr<const Adapter>& adapter() const { return adapter_; }
  // Returns the adapter slot that holds the adapter. REQUIRES: the state is or was kThere.
  [[nodiscard]] int32_t slot() const { return slot_; }
  // Returns why loading the adapter failed. REQUIRES: the state is kFailed.
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
  int64_t num_resident = 0;   // adapters in adapter slots
  int64_t num_awaited = 0;    // adapters that somebody waits for
  int64_t num_loads = 0;      // loads to adapter slots
  int64_t num_failures = 0;   // loads that failed
  int64_t num_evictions = 0;  // adapters that lost their adapter slot
  int64_t num_waits = 0;      // times that somebody had to wait for an adapter
};

// Assigns adapter slots to adapters, and loads adapters to them. Threads: take() and the functions
// declared after it are called by the engine's thread alone; any thread may call the others.
class AdapterSlots {
 public:
  // A function that writes an adapter to an adapter slot. The device has the adapter when it
  // returns. Its errors, of any kind, are given to the sequences that wait for the adapter.
  // Threads: several at a time call it.
  using Load = std::function<void(const Adapter& adapter, int32_t slot)>;
  // The place of a waiting request in the queue for adapter slots. The request with the smallest
  // Order comes first.
  using Order = std::pair<int64_t, int64_t>;

  AdapterSlots(int64_t num_slots, Load load);
  // Waits until the loads in progress have ended.
  ~AdapterSlots();
  AdapterSlots(const AdapterSlots&) = delete;
  AdapterSlots& operator=(const AdapterSlots&) = delete;

  // Returns the adapter, which is in an adapter slot already or is loaded to one in the background.
  // A slot that nobody uses goes to the first waiting adapter. While adapters wait and all adapter
  // slots are in use, the few slots whose adapter was last asked for the longest ago accept no new
  // users, so that each waiting adapter gets a slot in the end. Returns null where the adapter is
  // in one of these slots: ask again later.
  std::shared_ptr<const ResidentAdapter> take(const std::shared_ptr<const Adapter>& adapter,
                                              const Order& order);
  // Assigns adapter slots that nobody uses any more to waiting adapters.
  void hand_out();
  // Waits until a load has ended since the last call, or until the time `most` has passed.
  void wait(std::chrono::milliseconds most);
  // Returns how many loads have failed.
  [[nodiscard]] int64_t num_failures() const { return num_failures_; }

  // Stops loading, because the memory of the adapter slots is about to be given back. Waits for the
  // loads in progress.
  void pause();
  // Called when the memory of the adapter slots is mapped again, with undefined content. Loads the
  // adapters that are in use again, and forgets the others.
  void resume();

  // Loads an adapter to an adapter slot before it returns. Errors: those of loading the adapter.
  void put(std::shared_ptr<const Adapter> adapter, int32_t slot);

  [[nodiscard]] int64_t num_slots() const { return std::ssize(slots_); }
  [[nodiscard]] AdapterSlotStats stats() const;

 private:
  struct Slot {
    std::shared_ptr<const Adapter> adapter;  // null: the slot is empty
    std::weak_ptr<ResidentAdapter> users;    // held by all users of the slot
    bool is_loading = false;
    uint64_t last_taken = 0;

    [[nodiscard]] bool is_used() const { return is_loading || !users.expired(); }
  };
  struct Job {
    std::shared_ptr<ResidentAdapter> resident;
    int32_t slot = 0;
  };

  // The functions below require that the mutex is held. Assigns adapter slots that nobody uses to
  // waiting adapters.
  void assign();
  [[nodiscard]] std::optional<int32_t> unused_slot() const;
  // Returns whether the adapter slot accepts no new users, so that it becomes free for a waiting
  // adapter.
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
  int64_t num_ended_ = 0;  // loads that have ended
  int64_t num_seen_ = 0;   // num_ended_ when wait() last returned
  uint64_t clock_ = 0;
  bool is_paused_ = true;
  bool is_stopping_ = false;
  AdapterSlotStats counts_;
  std::atomic<int64_t> num_failures_ = 0;
  std::vector<std::thread> loaders_;
};

}  // namespace encore::loader
