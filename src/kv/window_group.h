// Manages the pages of layers in which a token sees only a window of the tokens before it. These
// layers have a pool of their own, and a sequence holds pages from its window's first token on.
// Pages behind a window go back to the pool, or stay idle where the prefix cache has them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kv/page_pool.h"
#include "kv/prefix_cache.h"

namespace encore::kv {

// Marks the place of a page that a sequence has given back.
inline constexpr Page kNoPage = -1;

// The pages that one sequence holds in a window's group, by their places in the sequence.
struct WindowPages {
  std::vector<Page> pages;  // kNoPage in the places before `first`
  int64_t first = 0;        // place of the first page that it holds
  int64_t num_offered = 0;  // first places that were offered to the cache

  [[nodiscard]] int64_t num_held() const { return std::ssize(pages) - first; }
};

// Says which tokens a token sees, and computes how many pages are enough.
struct WindowRule {
  int64_t window = 0;       // tokens that a token sees, including itself
  int64_t page_size = 0;    // Units: tokens
  int64_t step_tokens = 0;  // most tokens of one step, of all sequences together
  // The most tokens that a step guesses behind the one token of a sequence.
  int64_t num_drafts = 0;

  // The most pages that a sequence gets ahead of its need (sched::Scheduler).
  static constexpr int64_t kMostAhead = 8;

  // Returns the place of the first page that is seen by a token at `position` or behind it.
  [[nodiscard]] int64_t first_place(int64_t position) const;
  // Returns the most pages that a sequence holds, not counting pages that a step fills with several
  // tokens of its prompt.
  [[nodiscard]] int64_t pages_each() const;
  // Returns how many pages the tokens of one step fill, of all sequences together.
  [[nodiscard]] int64_t pages_a_step() const;
  // Returns how many pages are enough for `num_sequences` sequences of any length.
  [[nodiscard]] int64_t pages_for(int64_t num_sequences) const {
    return num_sequences * pages_each() + pages_a_step();
  }
  // Returns how many pages the group gets where the layers that keep all tokens get `num_whole`
  // pages. `wanted_whole`: the number of pages that `num_sequences` sequences want in the layers
  // that keep all tokens. Of the pages that these sequences want in the group (pages_for()), the
  // group gets the part num_whole / wanted_whole, but at least enough for one sequence, and at most
  // `num_whole`.
  [[nodiscard]] int64_t pages_beside(int64_t num_whole, int64_t wanted_whole,
                                     int64_t num_sequences) const;
};

// Hands out the pages of a window's group, and finds cached pages by their prefix. Threads: one.
class WindowGroup {
 public:
  // `keeps_prefixes`: pages can be found by the hashes of a PrefixCache's chains.
  WindowGroup(int64_t num_pages, const WindowRule& rule, bool keeps_prefixes);
  WindowGroup(const WindowGroup&) = delete;  // its cache refers to its pool
  WindowGroup& operator=(const WindowGroup&) = delete;

  // Returns how many pages are missing for the tokens before position `end`.
  [[nodiscard]] int64_t num_missing(const WindowPages& held, int64_t end) const;
  // Adds pages for the tokens before position `end`. Where the pool has too few, it returns false
  // and changes nothing.
  bool grow(WindowPages& held, int64_t end);
  // Gives back the pages that no token at `position` or behind it sees.
  void leave_behind(WindowPages& held, int64_t position);
  // Gives back all pages that the sequence holds.
  void release(WindowPages& held);

  // Returns the largest number, `num_pages` at most, of a sequence's first pages behind which it
  // can start. It can start where the cache has all of those pages that its next token sees.
  [[nodiscard]] int64_t num_startable(const PageChain& chain, int64_t num_pages) const;
  // Gives a sequence that starts behind `num_pages` pages the cached pages that it sees. REQUIRES:
  // num_startable() returned `num_pages`, and the sequence holds no pages.
  void start(WindowPages& held, const PageChain& chain, int64_t num_pages);
  // Stores those of a sequence's first `num_pages` pages that it holds, as PrefixCache::store()
  // does.
  void store(WindowPages& held, const PageChain& chain, int64_t num_pages);
  // Drops the hashes of idle pages. The pages become empty.
  void forget_idle();

  [[nodiscard]] const WindowRule& rule() const { return rule_; }
  [[nodiscard]] const PagePool& pool() const { return pool_; }
  // Hands pages out in random order from now on.
  void shuffle(uint64_t seed) { pool_.shuffle(seed); }

 private:
  WindowRule rule_;
  PagePool pool_;
  std::unique_ptr<PrefixCache> cache_;  // null: no page is kept
};

}  // namespace encore::kv
