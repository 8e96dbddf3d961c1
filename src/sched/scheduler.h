// Which tokens run in the next step. Knows counts and pages, not tokens; there is no prefill and no
// decode here, only tokens that have been computed and tokens that have not.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include <boost/container/flat_map.hpp>

#include "kv/page_pool.h"

namespace encore::sched {

using SequenceId = int64_t;

// What the scheduler knows of a sequence. Invariant: 0 <= num_computed <= num_tokens <= max_tokens
// while it runs, and its pages hold max_tokens. All computed: it waits for its last token.
struct Counts {
  int64_t num_tokens = 0;    // prompt and generated, those included that a step in flight samples
  int64_t num_computed = 0;  // with K and V in the cache
  int64_t max_tokens = 0;    // it may grow to; the last is never computed
  std::vector<kv::Page> pages;
};

// `count` tokens of one sequence, from position `first`.
struct Run {
  SequenceId sequence = 0;
  int64_t first = 0;
  int64_t count = 0;

  friend bool operator==(const Run&, const Run&) = default;
};

// One step's work. Rows follow each other in this order.
struct Plan {
  std::vector<Run> runs;

  [[nodiscard]] int64_t num_tokens() const;
  // Tokens per sequence when all runs have the same number and it is at most `max_q`; else 0.
  [[nodiscard]] int uniform_q(int64_t max_q) const;
};

// REQUIRES: max_num_tokens is at least max_batch_size.
struct SchedulerLimits {
  int64_t max_num_tokens = 2048;
  int64_t max_batch_size = 64;
  // Tokens of a step that is not uniform, where those are fewer: steps are split so that no larger
  // one is formed.
  std::optional<int64_t> max_mixed_tokens = {};
  int64_t max_q = 1;  // tokens per sequence of a uniform step at most
};

// First come, first served. A sequence is admitted when pages for all it may grow to are free, so
// it never waits once it runs; long prompts go in chunks beside the others. Threads: one.
class Scheduler {
 public:
  Scheduler(kv::PagePool& pool, const SchedulerLimits& limits) : pool_(pool), limits_(limits) {}

  // Queues a sequence of `num_tokens` that may grow to `max_tokens`.
  // False when its pages would not fit an empty pool: it can never run.
  [[nodiscard]] bool add(SequenceId id, int64_t num_tokens, int64_t max_tokens);
  // The next step; empty when nothing waits. Short runs first, so that those who generate never
  // wait behind a long prompt. Where they alone would fill a mixed step, every sequence runs one
  // token, which is a uniform step: nobody waits for long.
  Plan plan();
  // The step was launched: whatever is launched later finds computed what it covers. A sequence all
  // of whose tokens are computed then gets the one that the step samples, unless that is its last.
  void commit(const Plan& plan);
  // The sequence ends, wherever it is; its pages are free again.
  void remove(SequenceId id);

  // The pages that hold what has been computed, and so must be kept.
  [[nodiscard]] std::vector<kv::Page> pages_in_use() const;
  [[nodiscard]] const Counts& counts(SequenceId id) const { return running_.at(id); }
  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty(); }
  [[nodiscard]] int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  [[nodiscard]] int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }

 private:
  struct Waiting {
    SequenceId id;
    Counts counts;
  };
  void admit();

  kv::PagePool& pool_;
  SchedulerLimits limits_;
  std::deque<Waiting> waiting_;
  boost::container::flat_map<SequenceId, Counts> running_;  // dense: walked every step
};

}  // namespace encore::sched
