// Which pages of KV memory are free. Pages are numbers; their memory belongs to the executor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace encore::kv {

using Page = int32_t;

// Hands out pages, lowest number first after a fresh start. Threads: one.
class PagePool {
 public:
  // Units: tokens per page.
  PagePool(int64_t num_pages, int64_t page_size);

  // `count` pages or none at all.
  std::optional<std::vector<Page>> allocate(int64_t count);
  // Each page must have been handed out and not yet released.
  void release(const std::vector<Page>& pages);
  // From now on the free pages are handed out in random order, as those of a pool long in use are.
  void shuffle(uint64_t seed);

  [[nodiscard]] int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  [[nodiscard]] int64_t num_pages() const { return static_cast<int64_t>(is_free_.size()); }
  [[nodiscard]] int64_t page_size() const { return page_size_; }
  // Pages that `num_tokens` need.
  [[nodiscard]] int64_t pages_for(int64_t num_tokens) const {
    return (num_tokens + page_size_ - 1) / page_size_;
  }

 private:
  int64_t page_size_;
  std::vector<Page> free_;  // a stack
  std::vector<bool> is_free_;
};

}  // namespace encore::kv
