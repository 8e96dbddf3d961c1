// Decides which tokens run in the next step. There is no prefill and no decode here, only tokens
// that have been computed and tokens that have not.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "sched/admission_gate.h"
#include "sched/plan.h"
#include "sched/sequence.h"

namespace encore::sched {

// First come, first served among sequences of one priority; lower numbers first. A sequence is
// admitted when a step has a row for it and pages for the tokens it has are free, and gets more pages
// as it grows. Where none are left, the youngest sequence of the last priority gives up its pages,
// returns to its place in the queue, and is computed again later. With a prefix cache a sequence
// starts behind the tokens that it finds there, and waits for an earlier one that is about to compute
// its next page.
// Short prompts pass long ones, which keep their share of each step (SchedulerLimits::prompt_share). A
// short one is admitted when a step gets to it, so it has its first token within three steps, unless
// some of a higher priority come.
// Sequences that the gate does not admit let others pass, too.
// Where layers with a window have pages of their own, a sequence gets those for the tokens of each step, and
// gives back what its window leaves behind when a step is launched. A prefix counts as far as both kinds of
// pages are there.
// Threads: one. Lifetime: refers to the pool, and to cache, gate and window when there is one.
class Scheduler {
 public:
  Scheduler(kv::PagePool& pool, const SchedulerLimits& limits, kv::PrefixCache* cache = nullptr,
            AdmissionGate* gate = nullptr, kv::WindowGroup* window = nullptr)
      : pool_(pool), cache_(cache), gate_(gate), window_(window), limits_(limits) {}

  // Queues a sequence and gives it an index. Returns it where it lies while it lives.
  // REQUIRES: can_fit(max_length); with a cache, a chain with its root.
  Sequence& add(Sequence sequence);
  [[nodiscard]] const SchedulerLimits& limits() const { return limits_; }
  // Would a sequence of that many tokens fit an empty pool?
  [[nodiscard]] bool can_fit(int64_t max_length) const;
  // The next step; empty when nothing can run. Rows of up to max_q tokens first, so that those who
  // generate never wait behind a prompt, then prompts in the order of the queue, of each priority
  // short ones first, cut to what the step has room for (cut_to_fit). Each row has pages for its
  // tokens and for the one behind them, or all that may be with drafts.
  Plan plan(std::optional<int64_t> max_prompt_tokens = {});
  // Puts the rows of a plan in an order in which a sequence keeps the row that it had in the step
  // before, if this one has as many: data that the device holds by row is sent again for sequences
  // that move.
  static void keep_rows(Plan& plan);
  // Notes that the step was launched, and offers the pages that it fills to the cache.
  void commit(const Plan& plan);
  // Ends a sequence, running or waiting; its pages are free again, or kept in the cache. Unknown
  // ids are ignored.
  void remove(SequenceId id);
  // Grants pages for the tokens before position `end`, if as many are free.
  bool grow(Sequence& sequence, int64_t end);
  // The position before which all tokens that later steps compute have pages.
  [[nodiscard]] int64_t granted_end(const Sequence& sequence) const;
  // The farthest position that a sequence whose next step ends at `end` gets pages for, if it gets them
  // ahead of its need; absent: any.
  [[nodiscard]] std::optional<int64_t> farthest_grant(int64_t end) const;

  // The sequence; null when it has ended.
  [[nodiscard]] Sequence* find(SequenceId id) const;
  // The sequence of a row that plan() returned, without a look-up; null when it has ended.
  [[nodiscard]] static Sequence* find(const ScheduledTokens& row) {
    return row.place->id == row.sequence ? row.place : nullptr;
  }
  // All that live, in no order.
  [[nodiscard]] std::vector<const Sequence*> sequences() const;
  // Calls `visit(row, sequence)` for each row whose sequence still lives. `visit` may not remove
  // any.
  template <typename Visit>
  void for_each(const Plan& plan, const Visit& visit) const {
    for (const ScheduledTokens& row : plan.rows) {
      if (Sequence* const sequence = find(row)) visit(row, *sequence);
    }
  }

  // The pages that hold computed tokens of sequences, and so must be kept, by group of layers: those that
  // keep all tokens and, where they have pages of their own, those with a window. A shared page is there
  // once for each of them.
  [[nodiscard]] std::vector<std::vector<kv::Page>> pages_in_use() const;
  // The sequences that have pages, by arrival.
  [[nodiscard]] const std::vector<Sequence*>& running() const { return running_; }
  [[nodiscard]] bool idle() const { return sequences_.empty(); }
  [[nodiscard]] int64_t num_running() const { return std::ssize(running_); }
  [[nodiscard]] int64_t num_waiting() const { return std::ssize(queue_); }
  // Does a step have room for one more sequence than those that run and those that wait?
  [[nodiscard]] bool has_room() const {
    return num_running() + num_waiting() < limits_.max_batch_size;
  }
  // The number of times that a sequence lost its pages to an older one.
  [[nodiscard]] int64_t num_preemptions() const { return num_preemptions_; }

 private:
  // The place of a sequence among all.
  using Order = std::pair<int32_t, SequenceId>;
  static Order order(const Sequence& sequence) { return {sequence.priority, sequence.id}; }

  // Returns whether it admitted a sequence.
  bool admit(std::optional<int64_t> max_prompt_tokens);
  // Does the next step get to a sequence that waits, if it is admitted?
  [[nodiscard]] bool is_next(const Sequence& sequence,
                             std::optional<int64_t> max_prompt_tokens) const;
  // Is there a row for one more sequence, which finds `cached`, and are its other pages free?
  [[nodiscard]] bool has_room(const Sequence& sequence, const std::vector<kv::Page>& cached) const;
  // Are there pages of layers with a window for all that run and for one more?
  [[nodiscard]] bool has_window_room(const Sequence& sequence) const;
  // Makes room, by preempting sequences where that is needed and allowed. False where that is not
  // enough.
  bool make_room(const Sequence& sequence, const std::vector<kv::Page>& cached);
  // May a sequence that waits take the place of some that run?
  [[nodiscard]] bool outranks_some(const Sequence& sequence) const;
  // The tokens that the next step computes for sequences that generate, if prompts run beside them.
  [[nodiscard]] int64_t num_generating(std::optional<int64_t> max_prompt_tokens) const;
  [[nodiscard]] static int64_t first_pages_end(const Sequence& sequence);
  // Starts a sequence behind the tokens of `cached`. REQUIRES: room for it.
  void start(Sequence& sequence, const std::vector<kv::Page>& cached);
  [[nodiscard]] std::vector<kv::Page> find_prefix(Sequence& sequence) const;
  // Does a running sequence that comes earlier still compute that page of `sequence`?
  [[nodiscard]] bool is_underway(const Sequence& sequence, size_t page) const;
  [[nodiscard]] Plan choose(std::optional<int64_t> max_prompt_tokens) const;
  // Is a token chosen behind the one of a row, so that drafts of it may follow?
  [[nodiscard]] static bool may_guess(const ScheduledTokens& row);
  [[nodiscard]] static bool takes_drafts(const ScheduledTokens& row);
  [[nodiscard]] int64_t num_drafts(const DraftableStep& step) const;
  // The drafts of each sequence that guesses beside prompts; none where the sequences that generate would
  // take more than half of a mixed step with them.
  [[nodiscard]] int64_t mixed_drafts(std::optional<int64_t> max_prompt_tokens) const;
  [[nodiscard]] static bool guesses_in_mixed_step(const Sequence& sequence);
  static void give_drafts(Plan& plan, int64_t drafts);
  void grant_pages(Plan& plan);
  // Pages that each sequence may get ahead of its need.
  [[nodiscard]] int64_t num_ahead() const;
  // Grants pages of layers that keep all tokens, if as many are free.
  bool grow_whole(Sequence& sequence, int64_t end);
  void preempt_last();
  void offer_pages(Sequence& sequence);
  void release_pages(Sequence& sequence);

  kv::PagePool& pool_;
  kv::PrefixCache* cache_;
  AdmissionGate* gate_;
  kv::WindowGroup* window_;
  SchedulerLimits limits_;
  boost::unordered_flat_map<SequenceId, std::unique_ptr<Sequence>> sequences_;  // all that live
  // Keeps the memory of ended sequences for new ones: rows of steps in flight still point to it.
  std::vector<std::unique_ptr<Sequence>> vacant_;
  std::set<Order> queue_;           // who waits
  std::vector<Sequence*> running_;  // by arrival
  int64_t num_preemptions_ = 0;
};

}  // namespace encore::sched
