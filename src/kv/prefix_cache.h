// Remembers which pages hold which tokens, so that a sequence starts with the pages of the longest
// prefix that another one has computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kv/page_hash.h"
#include "kv/page_pool.h"

namespace encore::kv {

// The hashes of one sequence's full pages, and how many of the pages the cache has been offered.
struct PageChain {
  int64_t num_offered = 0;       // first pages that were found in the cache or offered to it
  std::vector<PageHash> hashes;  // hashes of the first pages that are full of known tokens
  PageHash root;                 // hash of the namespace
};

// A change of the cache's content, for routers that send a request to the server that has its
// prefix.
struct CacheEvent {
  enum class Kind : uint8_t { kStored, kRemoved };

  Kind kind = Kind::kStored;
  std::vector<PageHash> hashes;  // hashes of the pages; stored pages follow each other
  // The fields below are set for kStored only.
  PageHash parent;              // the hash before the first of `hashes`
  std::vector<int32_t> tokens;  // tokens of all these pages
  int64_t page_size = 0;        // Units: tokens
};

struct PrefixCacheOptions {
  // The name that routers give the model; it is part of every namespace.
  std::string model;
  // The key of the hashes. Absent: it is random, so that nobody outside can predict hashes. A
  // router that computes hashes needs to know the key.
  std::optional<std::string> key;
  // Is called with every event, in order, on the thread that uses the cache.
  std::function<void(const CacheEvent&)> on_event;
};

// Counts of the cache since the start.
struct PrefixCacheStats {
  int64_t num_queries = 0;   // sequences that looked for their prefix
  int64_t query_tokens = 0;  // tokens of these sequences
  int64_t hit_tokens = 0;    // tokens of these sequences that were found
  int64_t hashed_pages = 0;  // pages whose hashes were computed
  int64_t stored_pages = 0;
  int64_t evicted_pages = 0;  // pages handed out again, or forgotten in sleep
};

// Finds full pages by the hash of all tokens up to their end. The pool keeps stored pages that
// nobody refers to; the cache loses a page when the pool hands it out. The cache touches no memory
// of the device: whoever stores a page promises that every later step may read it.
// Threads: one. Lifetime: refers to the pool, whose on_evict() it sets; the pool outlives it.
class PrefixCache {
 public:
  explicit PrefixCache(PagePool& pool, PrefixCacheOptions options = {});
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Returns an empty chain in a namespace. The namespace is made of the model, the dtype of its KV,
  // the salt of the request, and a digest of its adapter. Requests without an adapter have an empty
  // digest, and so share a namespace.
  [[nodiscard]] PageChain chain(std::string_view kv_dtype, std::string_view salt,
                                std::string_view adapter_digest = {}) const;
  // Adds the hashes of further pages that `tokens` fill, which are all tokens of the sequence.
  // Threads: chain() and extend() may be called on any.
  void extend(PageChain& chain, std::span<const int32_t> tokens) const;

  // Returns the stored pages, `max_pages` at most, with which a sequence can start. Adds no
  // reference.
  [[nodiscard]] std::vector<Page> find(const PageChain& chain, int64_t max_pages) const;
  // Returns the stored page with that hash. Adds no reference.
  [[nodiscard]] std::optional<Page> find_page(const PageHash& hash) const;
  // Counts a sequence of `num_tokens` tokens that looked for its prefix and starts with `pages`.
  void count_query(int64_t num_tokens, std::span<const Page> pages);
  // Stores the first `num_pages` pages of a sequence. It leaves out pages that were offered before,
  // and pages whose hash belongs to another page in use. Launched steps write these pages, so only
  // later steps may read them.
  void store(PageChain& chain, std::span<const int32_t> tokens, std::span<const Page> pages,
             int64_t num_pages);
  // Stores the pages in the places [first, end) of a sequence as store() does. The chain must have
  // their hashes. `tokens` may be empty where nobody gets events.
  void store_pages(const PageChain& chain, std::span<const int32_t> tokens,
                   std::span<const Page> pages, int64_t first, int64_t end);
  // Drops the hashes of idle pages. The pages become empty.
  void forget_idle();

  [[nodiscard]] int64_t num_stored() const { return static_cast<int64_t>(pages_.size()); }
  [[nodiscard]] PrefixCacheStats stats() const {
    PrefixCacheStats stats = stats_;
    stats.hashed_pages = num_hashed();
    return stats;
  }
  // Returns how many pages' hashes were computed since the start. Threads: any.
  [[nodiscard]] int64_t num_hashed() const { return num_hashed_; }

 private:
  // Uses a hash's first word as its hash code, as the bits of a hash are as good as random.
  struct FirstWord {
    size_t operator()(const PageHash& hash) const { return hash.words[0]; }
  };

  void report_stored(const PageChain& chain, std::span<const int32_t> tokens, int64_t first,
                     int64_t end) const;
  void report_removed(std::vector<PageHash> hashes) const;

  PagePool& pool_;
  PrefixCacheOptions options_;
  PageHasher hasher_;
  std::unordered_map<PageHash, Page, FirstWord> pages_;
  std::vector<PageHash> hashes_;  // hashes of the stored pages, by page
  PrefixCacheStats stats_;        // all counts but `num_hashed_`
  mutable std::atomic<int64_t> num_hashed_ = 0;
};

}  // namespace encore::kv
