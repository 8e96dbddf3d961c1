#include "backend/cpu/queue.h"

#include <utility>

namespace encore::cpu {

void ShuffledQueue::barrier() {
  round_ids_.clear();
  if (round_start_ == pending_.size()) return;
  previous_round_start_ = round_start_;
  round_start_ = pending_.size();
}

void ShuffledQueue::wait_for(size_t later, size_t earlier) {
  pending_[earlier].followers.push_back(later);
  ++pending_[later].num_waiting_for;
}

void ShuffledQueue::append(Entry entry) {
  if (entry.id >= 0 && !walk_ids_.insert(entry.id).second) {
    barrier();
    walk_ids_ = {entry.id};
  }
  const size_t index = pending_.size();
  pending_.push_back({std::move(entry), 0, {}});
  const Entry& added = pending_.back().entry;

  // Among earlier rounds, a launch waits only for the previous one, because the launches of that
  // round wait for the round before them.
  for (size_t i = previous_round_start_; i < round_start_; ++i)
    wait_for(index, i);
  if (added.after.has_value()) {
    for (const int id : *added.after) {
      const auto earlier = round_ids_.find(id);
      if (earlier != round_ids_.end() && earlier->second) wait_for(index, *earlier->second);
    }
  } else {
    for (size_t i = round_start_; i < index; ++i)
      wait_for(index, i);
  }

  if (added.id >= 0) {
    round_ids_[added.id] = index;
  } else if (!added.after.has_value()) {
    barrier();
  }
}

void ShuffledQueue::run_all() {
  // The launches are moved out first, so that a task that throws leaves an empty queue behind.
  std::vector<Pending> pending = std::exchange(pending_, {});
  round_start_ = 0;
  previous_round_start_ = 0;
  for (auto& [id, place] : round_ids_)
    place.reset();

  std::vector<size_t> ready;
  for (size_t i = 0; i < pending.size(); ++i) {
    if (pending[i].num_waiting_for == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random_() % ready.size()], ready.back());
    const Pending& next = pending[ready.back()];
    ready.pop_back();
    for (const Task& task : next.entry.tasks)
      task.run();
    for (const size_t follower : next.followers) {
      if (--pending[follower].num_waiting_for == 0) ready.push_back(follower);
    }
  }
}

}  // namespace encore::cpu
