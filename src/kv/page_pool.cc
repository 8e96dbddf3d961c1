#include "kv/page_pool.h"

#include <algorithm>
#include <random>

#include "base/error.h"

namespace encore::kv {

PagePool::PagePool(int64_t num_pages, int64_t page_size)
    : page_size_(page_size), is_free_(num_pages, true) {
  ENCORE_CHECK(num_pages >= 0 && page_size > 0);
  for (int64_t page = num_pages - 1; page >= 0; --page)
    free_.push_back(static_cast<Page>(page));
}

std::optional<std::vector<Page>> PagePool::allocate(int64_t count) {
  if (count > num_free()) return std::nullopt;
  std::vector<Page> pages;
  for (int64_t i = 0; i < count; ++i) {
    pages.push_back(free_.back());
    is_free_[free_.back()] = false;
    free_.pop_back();
  }
  return pages;
}

void PagePool::release(const std::vector<Page>& pages) {
  for (const Page page : pages) {
    ENCORE_CHECK(page >= 0 && page < num_pages() && !is_free_[page], "page {} released twice",
                 page);
    is_free_[page] = true;
    free_.push_back(page);
  }
}

void PagePool::shuffle(uint64_t seed) {
  std::shuffle(free_.begin(), free_.end(), std::mt19937_64(seed));
}

}  // namespace encore::kv
