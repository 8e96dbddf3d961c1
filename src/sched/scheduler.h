// Decides which tokens run in the next step. The scheduler does not tell prefill from decode: it
// knows only tokens that are computed and tokens that are not.
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

// Serves sequences of one priority in the order of arrival, and lower priority numbers first. A
// sequence is admitted when a step has a row for it and enough pages are free for its tokens. It
// gets more pages as it grows. Where no page is left, the youngest sequence of the highest priority
// number gives up its pages, returns to its place in the queue, and is computed again later. With a
// prefix cache, a sequence starts behind the tokens that it finds there, and waits for an earlier
// sequence that is about to compute its next page.
// Short prompts pass long ones, which keep their share of each step
// (SchedulerLimits::prompt_share). A short prompt is admitted when a step has room for it, so it
// has its first token within three steps, unless sequences of a higher priority come.
// A sequence that the gate does not admit lets others pass, too.
// Where layers with a window have pages of their own, a sequence gets window pages for the tokens
// of each step. It gives back those that its window leaves behind when a step is launched. A prefix
// is found as far as both kinds of pages are cached.
// Threads: one. Lifetime: refers to the pool, and to cache, gate and window where they are given.
class Scheduler {
 public:
  Scheduler(kv::PagePool& pool, const SchedulerLimits& limits, kv::PrefixCache* cache = nullptr,
            AdmissionGate* gate = nullptr, kv::WindowGroup* window = nullptr)
      : pool_(pool), cache_(cache), gate_(gate), window_(window), limits_(limits) {}

  // Queues a sequence and gives it an index. Returns a reference to it that is valid while it
  // lives.
  // REQUIRES: can_fit(max_length); with a cache, a chain with its root.
  Sequence& add(Sequence sequence);
  [[nodiscard]] const SchedulerLimits& limits() const { return limits_; }
  // Returns whether a sequence of that many tokens would fit an empty pool.
  [[nodiscard]] bool can_fit(int64_t max_length) const;
  // Returns the plan of the next step; it is empty when nothing can run. Rows of up to max_q tokens
  // come first, so that sequences that generate never wait behind a prompt. Prompts follow in the
  // order of the queue, within a priority short ones first. The plan is cut to the room of a step
  // (cut_to_fit()). Each row has pages for its tokens and for the next one, and for all tokens that
  // may be drafted.
  Plan plan(std::optional<int64_t> max_prompt_tokens = {});
  // Reorders the rows of a plan so that a sequence keeps the row that it had in the step before,
  // where this plan has a row of that number. The device holds some data by row, and the host sends
  // it again for each sequence that moves.
  static void keep_rows(Plan& plan);
  // Notes that the step with this plan was launched, and offers the pages that it fills to the
  // cache.
  void commit(const Plan& plan);
  // Ends a sequence that runs or waits. Its pages are freed, or kept in the cache. Unknown ids are
  // ignored.
  void remove(SequenceId id);
  // Grants a sequence pages for its tokens before position `end`. Returns false where too few pages
  // are free.
  bool grow(Sequence& sequence, int64_t end);
  // Returns the position up to which the sequence has pages for tokens that later steps compute.
  [[nodiscard]] int64_t granted_end(const Sequence& sequence) const;
  // Returns the farthest position up to which a sequence may get pages ahead of its need, where its
  // next step ends at `end`. Absent: there is no limit.
  [[nodiscard]] std::optional<int64_t> farthest_grant(int64_t end) const;

  // Returns the sequence, or null when it has ended.
  [[nodiscard]] Sequence* find(SequenceId id) const;
  // Returns the sequence of a row that plan() returned, without a look-up, or null when it has
  // ended.
  [[nodiscard]] static Sequence* find(const ScheduledTokens& row) {
    return row.place->id == row.sequence ? row.place : nullptr;
  }
  // Returns all living sequences, in no order.
  [[nodiscard]] std::vector<const Sequence*> sequences() const;
  // Calls `visit(row, sequence)` for each row whose sequence still lives. `visit` may not remove
  // sequences.
  template <typename Visit>
  void for_each(const Plan& plan, const Visit& visit) const {
    for (const ScheduledTokens& row : plan.rows) {
      if (Sequence* const sequence = find(row)) visit(row, *sequence);
    }
  }

  // Returns the pages that hold computed tokens of sequences and so must be kept, by group of
  // layers. The first group holds the pages of all tokens, the second the pages of layers with a
  // window where these have pages of their own. A page that several sequences share is listed once
  // for each of them.
  [[nodiscard]] std::vector<std::vector<kv::Page>> pages_in_use() const;
  // Returns the sequences that have pages, in the order of arrival.
  [[nodiscard]] const std::vector<Sequence*>& running() const { return running_; }
  [[nodiscard]] bool idle() const { return sequences_.empty(); }
  [[nodiscard]] int64_t num_running() const { return std::ssize(running_); }
  [[nodiscard]] int64_t num_waiting() const { return std::ssize(queue_); }
  // Returns whether a step has room for one more sequence than those that run and those that wait.
  [[nodiscard]] bool has_room() const {
    return num_running() + num_waiting() < limits_.max_batch_size;
  }
  // Returns how many times a sequence lost its pages to another.
  [[nodiscard]] int64_t num_preemptions() const { return num_preemptions_; }

 private:
  // The order of a sequence among all sequences: those with lower values come first.
  using Order = std::pair<int32_t, SequenceId>;
  static Order order(const Sequence& sequence) { return {sequence.priority, sequence.id}; }

  // Admits sequences that wait. Returns whether it admitted one.
  bool admit(std::optional<int64_t> max_prompt_tokens);
  // Returns whether the next step has room for the prompt of a waiting sequence once it is
  // admitted.
  [[nodiscard]] bool is_next(const Sequence& sequence,
                             std::optional<int64_t> max_prompt_tokens) const;
  // Returns whether there is a row for one more sequence, and whether the pages that it needs
  // beside `cached` are free.
  [[nodiscard]] bool has_room(const Sequence& sequence, const std::vector<kv::Page>& cached) const;
  // Returns whether the pool of the layers with a window has enough pages for all running sequences
  // and for `sequence`.
  [[nodiscard]] bool has_window_room(const Sequence& sequence) const;
  // Makes room for a sequence, and preempts others where that is needed and allowed. Returns false
  // where that is not enough.
  bool make_room(const Sequence& sequence, const std::vector<kv::Page>& cached);
  // Returns whether a waiting sequence may take the place of some that run.
  [[nodiscard]] bool outranks_some(const Sequence& sequence) const;
  // Returns how many tokens, drafts included, the sequences that generate have in the next step, if
  // that step also has prompts.
  [[nodiscard]] int64_t num_generating(std::optional<int64_t> max_prompt_tokens) const;
  [[nodiscard]] static int64_t first_pages_end(const Sequence& sequence);
  // Starts a sequence behind the tokens of the pages `cached`. REQUIRES: has_room() for the
  // sequence.
  void start(Sequence& sequence, const std::vector<kv::Page>& cached);
  [[nodiscard]] std::vector<kv::Page> find_prefix(Sequence& sequence) const;
  // Returns whether a running sequence that comes earlier still computes that page of `sequence`.
  [[nodiscard]] bool is_underway(const Sequence& sequence, size_t page) const;
  [[nodiscard]] Plan choose(std::optional<int64_t> max_prompt_tokens) const;
  // Returns whether the step chooses a token behind the row's single token, so that drafts may
  // follow it.
  [[nodiscard]] static bool may_guess(const ScheduledTokens& row);
  [[nodiscard]] static bool takes_drafts(const ScheduledTokens& row);
  [[nodiscard]] int64_t num_drafts(const DraftableStep& step) const;
  // Returns the number of drafts of each sequence that guesses in a mixed step. It is 0 where the
  // sequences that generate would take more than half of the step with their drafts.
  [[nodiscard]] int64_t mixed_drafts(std::optional<int64_t> max_prompt_tokens) const;
  [[nodiscard]] static bool guesses_in_mixed_step(const Sequence& sequence);
  static void give_drafts(Plan& plan, int64_t drafts);
  void grant_pages(Plan& plan);
  // Returns how many pages each sequence may get ahead of its need.
  [[nodiscard]] int64_t num_ahead() const;
  // Grants pages of layers that keep all tokens. Returns false where too few are free.
  bool grow_whole(Sequence& sequence, int64_t end);
  void preempt_last();
  void offer_pages(Sequence& sequence);
  void release_pages(Sequence& sequence);

  kv::PagePool& pool_;
  kv::PrefixCache* cache_;
  AdmissionGate* gate_;
  kv::WindowGroup* window_;
  SchedulerLimits limits_;
  // The living sequences, by their ids.
  boost::unordered_flat_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  // Holds the memory of ended sequences for new ones, as rows of steps in flight still point to it.
  std::vector<std::unique_ptr<Sequence>> vacant_;
  std::set<Order> queue_;           // waiting sequences
  std::vector<Sequence*> running_;  // sequences that have pages, by arrival
  int64_t num_preemptions_ = 0;
};

}  // namespace encore::sched
