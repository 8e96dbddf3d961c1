// Defines the nodes that the CPU device records, and the queue in which tests run them out of
// order.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "backend/device.h"

namespace encore::cpu {

// One unit of work of a launch, copy or fill.
struct Task {
  RecordedNode node;
  std::function<void()> run;
};

// Everything one launch enqueued, with its place in the order.
struct Entry {
  int id = -1;
  std::optional<std::vector<int>> after;  // as LaunchAttributes::after
  std::vector<Task> tasks;                // run one after the other
};

// Launches that have not run yet. They run in a random order that the given dependencies allow:
//
//   - Ids name launches of one round. A round ends at barrier(), and where a launch comes again, be it of this
//     round or of one before it: a walk through the launches of a step ends there, and the next begins. Whatever is
//     appended later waits for the whole round.
//   - A launch with `after` waits for the launches of its round with those ids, and no others. Ids
//     that the round has not seen are of an earlier round and already waited for.
//   - A launch without `after` waits for everything before it. Later launches wait for it only if
//     they name it or have no `after` themselves; but when it has no id, nothing could name it, and
//     it ends the round.
//
// Threads: one at a time.
class ShuffledQueue {
 public:
  explicit ShuffledQueue(uint64_t seed) : random_(seed) {}

  void append(Entry entry);
  // Everything appended later waits for everything appended so far.
  void barrier();
  // Runs all; the round goes on. Errors: the first that a task throws; tasks that have not run by
  // then are dropped.
  void run_all();
  [[nodiscard]] bool empty() const { return pending_.empty(); }

 private:
  struct Pending {
    Entry entry;
    int num_waiting_for = 0;
    std::vector<size_t> followers;
  };
  void wait_for(size_t later, size_t earlier);

  std::mt19937_64 random_;
  std::vector<Pending> pending_;
  size_t round_start_ = 0;           // first launch of the current round
  size_t previous_round_start_ = 0;  // the round before it is [previous_round_start_, round_start_)
  std::map<int, std::optional<size_t>> round_ids_;  // nothing: it has run
  std::set<int> walk_ids_;                          // of all rounds since a launch came again
};

}  // namespace encore::cpu
