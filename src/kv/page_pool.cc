#include "kv/page_pool.h"

#include <algorithm>
#include <random>

#include "base/error.h"

namespace encore::kv {

PagePool::PagePool(int64_t num_pages, int64_t page_size)
    : page_size_(page_size), states_(num_pages) {
  ENCORE_CHECK(num_pages >= 0 && page_size > 0);
  for (int64_t page = num_pages - 1; page >= 0; --page)
    empty_.push_back(static_cast<Page>(page));
}

std::optional<std::vector<Page>> PagePool::allocate(int64_t count) {
  if (count > num_free()) return std::nullopt;
  while (num_empty() < count) {
    const Page page = idle_.front();
    on_evict_(page);
    forget(page);
  }
  std::vector<Page> pages(empty_.rbegin(), empty_.rbegin() + count);
  empty_.resize(empty_.size() - count);
  for (const Page page : pages)
    states_[page].num_references = 1;
  return pages;
}

void PagePool::share(Page page) {
  State& state = states_[page];
  ENCORE_CHECK(state.num_references > 0 || state.is_kept, "page {} is shared but empty", page);
  if (is_idle(state)) idle_.erase(state.place);
  ++state.num_references;
}

void PagePool::release(const std::vector<Page>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    ENCORE_CHECK(*page >= 0 && *page < num_pages() && states_[*page].num_references > 0,
                 "page {} released twice", *page);
    State& state = states_[*page];
    if (--state.num_references > 0) continue;
    if (state.is_kept) {
      state.place = idle_.insert(idle_.end(), *page);
    } else {
      empty_.push_back(*page);
    }
  }
}

void PagePool::keep(Page page) {
  ENCORE_CHECK(states_[page].num_references > 0, "page {} is kept but not in use", page);
  states_[page].is_kept = true;
}

void PagePool::forget(Page page) {
  State& state = states_[page];
  if (is_idle(state)) {
    idle_.erase(state.place);
    empty_.push_back(page);
  }
  state.is_kept = false;
}

void PagePool::shuffle(uint64_t seed) {
  std::shuffle(empty_.begin(), empty_.end(), std::mt19937_64(seed));
}

}  // namespace encore::kv
