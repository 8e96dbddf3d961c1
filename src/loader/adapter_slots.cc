#include "loader/adapter_slots.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace encore::loader {
namespace {

// The number of threads that load adapters. With several, an adapter on a slow disk does not delay
// adapters that are in memory.
constexpr int kLoaders = 4;
// While a request waits for an adapter slot, one of kClosingShare adapter slots accepts no new
// users, so that it becomes free. The other adapter slots keep adapters that are in demand.
constexpr int64_t kClosingShare = 4;

}  // namespace

void ResidentAdapter::arrive(int32_t slot) {
  slot_ = slot;
  state_.store(State::kThere, std::memory_order_release);
}

void ResidentAdapter::give_up(std::string problem) {
  problem_ = std::move(problem);
  state_.store(State::kFailed, std::memory_order_release);
}

AdapterSlots::AdapterSlots(int64_t num_slots, Load load)
    : load_(std::move(load)), slots_(static_cast<size_t>(num_slots)) {
  for (int i = 0; i < kLoaders; ++i)
    loaders_.emplace_back([this] { load_jobs(); });
}

AdapterSlots::~AdapterSlots() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  jobs_come_.notify_all();
  for (std::thread& loader : loaders_)
    loader.join();
}

std::shared_ptr<const ResidentAdapter> AdapterSlots::take(
    const std::shared_ptr<const Adapter>& adapter, const Order& order) {
  const std::lock_guard lock(mutex_);
  assign();
  if (const auto found = slot_of_.find(adapter->generation); found != slot_of_.end()) {
    const Slot& slot = slots_[static_cast<size_t>(found->second)];
    if (is_closing(slot)) return nullptr;
    return give(found->second);
  }
  for (const auto& [place, waiting] : awaited_) {
    const auto resident = waiting.lock();
    if (resident && resident->adapter()->generation == adapter->generation) return resident;
  }
  const auto resident = std::make_shared<ResidentAdapter>(adapter);
  awaited_[order] = resident;
  ++counts_.num_waits;
  assign();
  return resident;
}

std::shared_ptr<ResidentAdapter> AdapterSlots::give(int32_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.last_taken = ++clock_;
  auto resident = slot.users.lock();
  if (resident) return resident;
  resident = std::make_shared<ResidentAdapter>(slot.adapter);
  resident->arrive(index);
  slot.users = resident;
  return resident;
}

void AdapterSlots::assign() {
  if (is_paused_) return;
  while (!awaited_.empty()) {
    const auto first = awaited_.begin();
    const auto resident = first->second.lock();
    if (!resident) {  // nobody waits for this adapter any more
      awaited_.erase(first);
      continue;
    }
    const auto index = unused_slot();
    if (!index) return;
    Slot& slot = slots_[static_cast<size_t>(*index)];
    if (slot.adapter) ++counts_.num_evictions;
    empty(slot);
    slot.adapter = resident->adapter();
    slot.users = resident;
    slot.is_loading = true;
    slot.last_taken = ++clock_;
    slot_of_[slot.adapter->generation] = *index;
    jobs_.push_back({resident, *index});
    awaited_.erase(first);
    jobs_come_.notify_one();
  }
}

std::optional<int32_t> AdapterSlots::unused_slot() const {
  std::optional<int32_t> best;
  for (int32_t i = 0; i < std::ssize(slots_); ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot.is_used()) continue;
    if (!slot.adapter) return i;
    if (!best || slot.last_taken < slots_[static_cast<size_t>(*best)].last_taken) best = i;
  }
  return best;
}

bool AdapterSlots::is_closing(const Slot& slot) const {
  const auto num_closing =
      std::min<int64_t>(std::ssize(awaited_), std::max<int64_t>(1, num_slots() / kClosingShare));
  if (num_closing == 0 || !slot.is_used()) return false;
  const auto num_longer = std::ranges::count_if(slots_, [&](const Slot& other) {
    return other.is_used() && other.last_taken < slot.last_taken;
  });
  return num_longer < num_closing;
}

void AdapterSlots::empty(Slot& slot) {
  if (slot.adapter) slot_of_.erase(slot.adapter->generation);
  slot.adapter = nullptr;
  slot.users.reset();
}

void AdapterSlots::load_jobs() {
  std::unique_lock lock(mutex_);
  while (true) {
    jobs_come_.wait(lock, [&] { return is_stopping_ || (!is_paused_ && !jobs_.empty()); });
    if (is_stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    ++num_loading_;
    lock.unlock();
    std::optional<std::string> problem;
    try {
      load_(*job.resident->adapter(), job.slot);
    } catch (const std::exception& error) {
      problem = error.what();
      log::warning("adapter {:?}: {}", job.resident->adapter()->name, *problem);
    }
    lock.lock();
    --num_loading_;
    finish(job, problem);
    job = {};
    loads_end_.notify_all();
  }
}

void AdapterSlots::finish(Job& job, const std::optional<std::string>& problem) {
  Slot& slot = slots_[static_cast<size_t>(job.slot)];
  slot.is_loading = false;
  ++num_ended_;
  ++counts_.num_loads;
  if (!problem) return job.resident->arrive(job.slot);
  empty(slot);
  job.resident->give_up(*problem);
  ++num_failures_;
}

void AdapterSlots::hand_out() {
  const std::lock_guard lock(mutex_);
  assign();
}

void AdapterSlots::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  loads_end_.wait_for(lock, most, [&] { return num_ended_ != num_seen_; });
  num_seen_ = num_ended_;
}

void AdapterSlots::pause() {
  std::unique_lock lock(mutex_);
  is_paused_ = true;
  loads_end_.wait(lock, [&] { return num_loading_ == 0; });
}

void AdapterSlots::resume() {
  const std::lock_guard lock(mutex_);
  for (int32_t i = 0; i < std::ssize(slots_); ++i) {
    Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot.is_loading || !slot.adapter) continue;  // a slot not loaded yet is loaded later
    const auto resident = slot.users.lock();
    if (!resident) {
      empty(slot);
      continue;
    }
    try {
      load_(*slot.adapter, i);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kDevice) throw;
      log::warning("adapter {:?}: {}", slot.adapter->name, error.what());
      empty(slot);
      resident->give_up(error.what());
      ++num_failures_;
    }
  }
  is_paused_ = false;
  jobs_come_.notify_all();
}

void AdapterSlots::put(std::shared_ptr<const Adapter> adapter, int32_t index) {
  load_(*adapter, index);
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.adapter = std::move(adapter);
  slot_of_[slot.adapter->generation] = index;
}

AdapterSlotStats AdapterSlots::stats() const {
  const std::lock_guard lock(mutex_);
  AdapterSlotStats stats = counts_;
  stats.num_failures = num_failures_;
  stats.num_awaited =
      std::ranges::count_if(awaited_, [](const auto& entry) { return !entry.second.expired(); });
  for (const Slot& slot : slots_) {
    if (slot.is_loading) ++stats.num_awaited;
    if (slot.adapter && !slot.is_loading) ++stats.num_resident;
  }
  return stats;
}

}  // namespace encore::loader
