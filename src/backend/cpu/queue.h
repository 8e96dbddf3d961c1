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

// The tasks that one launch enqueued, with the launch's place in the order.
struct Entry {
  int id = -1;
  std::optional<std::vector<int>> after;  // see LaunchAttributes::after
  std::vector<Task> tasks;                // these run one after the other
};

// Holds launches that have not run yet. They run in a random order that the given dependencies
// allow:
//
//   - Ids name launches of one round. A round ends at barrier(). It also ends where a launch of
//     this round or of an earlier one comes again: there, a walk through the launches of a step
//     ends, and the next walk begins. Launches that are appended later wait for the whole round.
//   - A launch with `after` waits for the launches of its round with those ids, and for no others.
//     Ids that the round has not seen belong to an earlier round, whose launches it waits for
//     anyway.
//   - A launch without `after` waits for everything before it. Later launches wait for it only if
//     they name it or have no `after` themselves. A launch without `after` and without an id cannot
//     be named, so it ends the round.
//
// Threads: one at a time.
class ShuffledQueue {
 public:
  explicit ShuffledQueue(uint64_t seed) : random_(seed) {}

  void append(Entry entry);
  // Makes everything that is appended later wait for everything appended so far.
  void barrier();
  // Runs all pending launches, without ending the current round. Errors: the first error that a
  // task throws; tasks that have not run by then are dropped.
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
  std::map<int, std::optional<size_t>> round_ids_;  // pending launch by id; no value: it has run
  std::set<int> walk_ids_;  // ids of all rounds since a launch last came again
};

}  // namespace encore::cpu
