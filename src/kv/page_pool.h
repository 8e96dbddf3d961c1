// Keeps track of which pages of KV memory are free, used or kept. Pages are numbers; the executor
// owns their memory.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "base/rounding.h"

namespace encore::kv {

using Page = int32_t;

// Counts the references to pages and hands out those that have none, lowest number first after a
// fresh start. A page without references is empty, or it is idle: its content is kept until no empty
// page is left. Threads: one.
class PagePool {
 public:
  // Units: tokens per page.
  PagePool(int64_t num_pages, int64_t page_size);

  // `count` pages with one reference each, or none at all. Empty pages go first, then idle ones,
  // least recently used first.
  std::optional<std::vector<Page>> allocate(int64_t count);
  // Adds a reference to a page that is in use or idle.
  void share(Page page);
  // Drops one reference of each page. The pages of one sequence become idle in such an order that
  // the last of them is evicted first. Each page must have a reference.
  void release(const std::vector<Page>& pages);

  // The content of a page in use is worth keeping when its last reference goes.
  void keep(Page page);
  // The content of a kept page is not wanted any more; an idle page becomes empty.
  void forget(Page page);
  // Called with each idle page that allocate() hands out, before it is handed out.
  void on_evict(std::function<void(Page)> on_evict) { on_evict_ = std::move(on_evict); }
  // From now on the empty pages are handed out in random order, as those of a pool long in use are.
  void shuffle(uint64_t seed);

  // Pages that can be handed out: empty and idle ones.
  [[nodiscard]] int64_t num_free() const { return num_empty() + num_idle(); }
  [[nodiscard]] int64_t num_empty() const { return static_cast<int64_t>(empty_.size()); }
  [[nodiscard]] int64_t num_idle() const { return static_cast<int64_t>(idle_.size()); }
  [[nodiscard]] int64_t num_pages() const { return static_cast<int64_t>(states_.size()); }
  [[nodiscard]] int64_t num_references(Page page) const { return states_[page].num_references; }
  [[nodiscard]] bool is_kept(Page page) const { return states_[page].is_kept; }
  // Least recently used first.
  [[nodiscard]] const std::list<Page>& idle() const { return idle_; }
  [[nodiscard]] int64_t page_size() const { return page_size_; }
  // Pages that `num_tokens` need.
  [[nodiscard]] int64_t pages_for(int64_t num_tokens) const {
    return div_up(num_tokens, page_size_);
  }

 private:
  struct State {
    int32_t num_references = 0;
    bool is_kept = false;
    std::list<Page>::iterator place{};  // in idle_, where it is idle
  };
  [[nodiscard]] bool is_idle(const State& state) const {
    return state.is_kept && state.num_references == 0;
  }

  int64_t page_size_;
  std::vector<State> states_;
  std::vector<Page> empty_;  // a stack
  std::list<Page> idle_;
  std::function<void(Page)> on_evict_ = [](Page) {};
};

}  // namespace encore::kv
