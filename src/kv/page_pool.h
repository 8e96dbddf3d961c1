// Keeps track of which pages of KV memory are free, in use, or kept. A page is a number here; the
// executor owns the memory of the pages.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "base/rounding.h"

namespace encore::kv {

using Page = int32_t;

// Counts the references to pages and hands out pages that have none. A fresh pool hands out the
// lowest number first. A page without references is either empty or idle. The content of an idle
// page is kept until no empty page is left. Threads: one.
class PagePool {
 public:
  // `page_size`: the number of tokens that a page holds.
  PagePool(int64_t num_pages, int64_t page_size);

  // Returns `count` pages with one reference each, or nothing where fewer are free. It takes empty
  // pages first, then idle pages, least recently used first.
  std::optional<std::vector<Page>> allocate(int64_t count);
  // Adds a reference to a page that is in use or idle.
  void share(Page page);
  // Drops one reference of each page. The pages of one sequence become idle in such an order that
  // the last of them is evicted first. Each page must have a reference.
  void release(const std::vector<Page>& pages);

  // Marks a page in use, so that its content is kept when its last reference goes.
  void keep(Page page);
  // Takes the mark of keep() from a page. An idle page becomes empty.
  void forget(Page page);
  // Sets a function that allocate() calls with each idle page before it hands the page out.
  void on_evict(std::function<void(Page)> on_evict) { on_evict_ = std::move(on_evict); }
  // Hands out the empty pages in random order from now on, as a pool that was long in use does.
  void shuffle(uint64_t seed);

  // Returns how many pages can be handed out: the empty and the idle ones.
  [[nodiscard]] int64_t num_free() const { return num_empty() + num_idle(); }
  [[nodiscard]] int64_t num_empty() const { return static_cast<int64_t>(empty_.size()); }
  [[nodiscard]] int64_t num_idle() const { return static_cast<int64_t>(idle_.size()); }
  [[nodiscard]] int64_t num_pages() const { return static_cast<int64_t>(states_.size()); }
  [[nodiscard]] int64_t num_references(Page page) const { return states_[page].num_references; }
  [[nodiscard]] bool is_kept(Page page) const { return states_[page].is_kept; }
  // Returns the idle pages, least recently used first.
  [[nodiscard]] const std::list<Page>& idle() const { return idle_; }
  [[nodiscard]] int64_t page_size() const { return page_size_; }
  // Returns how many pages `num_tokens` tokens need.
  [[nodiscard]] int64_t pages_for(int64_t num_tokens) const {
    return div_up(num_tokens, page_size_);
  }

 private:
  struct State {
    int32_t num_references = 0;
    bool is_kept = false;
    std::list<Page>::iterator place{};  // position in `idle_`, where the page is idle
  };
  [[nodiscard]] bool is_idle(const State& state) const {
    return state.is_kept && state.num_references == 0;
  }

  int64_t page_size_;
  std::vector<State> states_;
  std::vector<Page> empty_;  // used as a stack
  std::list<Page> idle_;
  std::function<void(Page)> on_evict_ = [](Page) {};
};

}  // namespace encore::kv
