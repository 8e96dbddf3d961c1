// Pages of layers in which a token sees a window of those before it: a pool of their own, of which a
// sequence holds the pages from its window's first token on. Pages behind a window go back to the pool,
// or stay idle where the prefix cache has them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kv/page_pool.h"
#include "kv/prefix_cache.h"

namespace encore::kv {

// Stands in the place of a page that a sequence has given back.
inline constexpr Page kNoPage = -1;

// The pages of one sequence in a window's group, by their places in the sequence.
struct WindowPages {
  std::vector<Page> pages;  // kNoPage in front of `first`
  int64_t first = 0;        // the place of the first that it holds
  int64_t num_offered = 0;  // first places that the cache has been offered

  [[nodiscard]] int64_t num_held() const { return std::ssize(pages) - first; }
};

// Says which tokens are seen, and with that how many pages are enough.
struct WindowRule {
  int64_t window = 0;       // tokens that a token sees, itself among them
  int64_t page_size = 0;    // Units: tokens
  int64_t step_tokens = 0;  // of all sequences in one step at most
  int64_t num_drafts = 0;   // tokens that a step guesses behind the one of each sequence at most

  // Pages that a sequence gets ahead of its need at most (sched::Scheduler).
  static constexpr int64_t kMostAhead = 8;

  // The place of the first page that a token at `position`, or one behind it, sees.
  [[nodiscard]] int64_t first_place(int64_t position) const;
  // Pages that a sequence holds at most, beside those that a step fills with more than one token of it.
  [[nodiscard]] int64_t pages_each() const;
  // Pages that the tokens of one step fill, of all sequences together.
  [[nodiscard]] int64_t pages_a_step() const;
  // Pages that are enough for so many sequences, however long they are.
  [[nodiscard]] int64_t pages_for(int64_t num_sequences) const {
    return num_sequences * pages_each() + pages_a_step();
  }
  // Pages of the group beside `num_whole` pages of layers that keep all tokens, where `wanted_whole` of
  // those are as many as `num_sequences` want: as large a share of what these sequences want, enough for
  // one of them, and no more than `num_whole`.
  [[nodiscard]] int64_t pages_beside(int64_t num_whole, int64_t wanted_whole,
                                     int64_t num_sequences) const;
};

// Hands out the pages of a window's group, and finds them by their prefix. Threads: one.
class WindowGroup {
 public:
  // `keeps_prefixes`: pages are found by the hashes of a PrefixCache's chains.
  WindowGroup(int64_t num_pages, const WindowRule& rule, bool keeps_prefixes);
  WindowGroup(const WindowGroup&) = delete;  // its cache refers to its pool
  WindowGroup& operator=(const WindowGroup&) = delete;

  // Pages that are missing for the tokens before position `end`.
  [[nodiscard]] int64_t num_missing(const WindowPages& held, int64_t end) const;
  // Adds pages for the tokens before position `end`; false, and nothing happens, where the pool has not
  // as many.
  bool grow(WindowPages& held, int64_t end);
  // Gives back the pages that neither a token at `position` nor a later one sees.
  void leave_behind(WindowPages& held, int64_t position);
  // Gives back all.
  void release(WindowPages& held);

  // The most of a sequence's first `num_pages` pages behind which it can start: those of them that its
  // next token sees are there.
  [[nodiscard]] int64_t num_startable(const PageChain& chain, int64_t num_pages) const;
  // Gives a sequence that starts behind so many pages those that it sees. REQUIRES: it is
  // num_startable(), and the sequence has none.
  void start(WindowPages& held, const PageChain& chain, int64_t num_pages);
  // Stores a sequence's pages as PrefixCache::store() does, those that it holds.
  void store(WindowPages& held, const PageChain& chain, int64_t num_pages);
  // Drops the hashes of idle pages, which become empty.
  void forget_idle();

  [[nodiscard]] const WindowRule& rule() const { return rule_; }
  [[nodiscard]] const PagePool& pool() const { return pool_; }
  // Deals its pages out in random order from now on.
  void shuffle(uint64_t seed) { pool_.shuffle(seed); }

 private:
  WindowRule rule_;
  PagePool pool_;
  std::unique_ptr<PrefixCache> cache_;  // null: no page is kept
};

}  // namespace encore::kv
