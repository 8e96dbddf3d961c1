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
  int64_t num_offered = 0;       // first pages that the cache has or has been offered
  std::vector<PageHash> hashes;  // of its first pages that are full of known tokens
  PageHash root;                 // of the namespace
};

// A change of what the cache holds, for those who route requests to where their prefix is.
struct CacheEvent {
  enum class Kind : uint8_t { kStored, kRemoved };

  Kind kind = Kind::kStored;
  std::vector<PageHash> hashes;  // of pages; stored ones follow each other
  // The fields below are set for kStored only.
  PageHash parent;              // the hash before the first of them
  std::vector<int32_t> tokens;  // of all of them
  int64_t page_size = 0;        // Units: tokens
};

struct PrefixCacheOptions {
  // The name that routers give the model; it is part of every namespace.
  std::string model;
  // The key of the hashes. Absent: random, so that nobody outside can tell hashes. Routers that
  // compute hashes need one that they know.
  std::optional<std::string> key;
  // Gets every event, in order, on the thread that uses the cache.
  std::function<void(const CacheEvent&)> on_event;
};

// Counts since the start.
struct PrefixCacheStats {
  int64_t num_queries = 0;   // sequences that looked for their prefix
  int64_t query_tokens = 0;  // tokens that they had
  int64_t hit_tokens = 0;    // tokens of those that were found
  int64_t hashed_pages = 0;  // that hashes were computed of
  int64_t stored_pages = 0;
  int64_t evicted_pages = 0;  // handed out again, or forgotten in sleep
};

// Finds full pages by the hash of all tokens up to their end. The pool keeps stored pages that
// nobody refers to; the cache loses them as the pool hands them out. No device code: whoever stores
// a page promises that every later step may read it.
// Threads: one. Lifetime: refers to the pool, whose on_evict() it takes; the pool outlives it.
class PrefixCache {
 public:
  explicit PrefixCache(PagePool& pool, PrefixCacheOptions options = {});
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // An empty chain in the namespace of the model, the dtype of its KV, the salt that a request
  // brings, and what its adapter is made of; those without one share a namespace.
  [[nodiscard]] PageChain chain(std::string_view kv_dtype, std::string_view salt,
                                std::string_view adapter_digest = {}) const;
  // Adds the hashes of further pages that `tokens`, all of the sequence, fill.
  // Threads: chain() and extend() may be called on any.
  void extend(PageChain& chain, std::span<const int32_t> tokens) const;

  // The stored pages with which a sequence can start, `max_pages` at most. Adds no reference.
  [[nodiscard]] std::vector<Page> find(const PageChain& chain, int64_t max_pages) const;
  // The stored page of that hash. Adds no reference.
  [[nodiscard]] std::optional<Page> find_page(const PageHash& hash) const;
  // A sequence of `num_tokens` looked for its prefix, and starts with `pages`.
  void count_query(int64_t num_tokens, std::span<const Page> pages);
  // Stores the first `num_pages` pages of a sequence, but for those offered before and those whose
  // hash another page in use has. Launched steps write these pages, so only later ones may read them.
  void store(PageChain& chain, std::span<const int32_t> tokens, std::span<const Page> pages,
             int64_t num_pages);
  // Does store() for the pages in the places [first, end) of a sequence, whose hashes the chain has.
  // `tokens` may be left out where nobody gets events.
  void store_pages(const PageChain& chain, std::span<const int32_t> tokens,
                   std::span<const Page> pages, int64_t first, int64_t end);
  // Drops the hashes of idle pages, which become empty.
  void forget_idle();

  [[nodiscard]] int64_t num_stored() const { return static_cast<int64_t>(pages_.size()); }
  [[nodiscard]] PrefixCacheStats stats() const {
    PrefixCacheStats stats = stats_;
    stats.hashed_pages = num_hashed();
    return stats;
  }
  // Pages that hashes were computed of since the start. Threads: any.
  [[nodiscard]] int64_t num_hashed() const { return num_hashed_; }

 private:
  // Takes a hash's first word as its hash code, since a hash is as good as random already.
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
  std::vector<PageHash> hashes_;  // by page, of those that are stored
  PrefixCacheStats stats_;        // but for num_hashed_
  mutable std::atomic<int64_t> num_hashed_ = 0;
};

}  // namespace encore::kv
