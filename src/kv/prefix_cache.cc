#include "kv/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace encore::kv {

PrefixCache::PrefixCache(PagePool& pool, PrefixCacheOptions options)
    : pool_(pool),
      options_(std::move(options)),
      hasher_(options_.key),
      hashes_(static_cast<size_t>(pool.num_pages())) {
  pages_.reserve(hashes_.size());
  pool_.on_evict([this](Page page) {
    pages_.erase(hashes_[page]);
    ++stats_.evicted_pages;
    report_removed({hashes_[page]});
  });
}

PrefixCache::~PrefixCache() {
  for (const auto& [hash, page] : pages_)
    pool_.forget(page);
  pool_.on_evict([](Page) {});
}

PageChain PrefixCache::chain(std::string_view kv_dtype, std::string_view salt,
                             std::string_view adapter_digest) const {
  if (!adapter_digest.empty())
    return {.root = hasher_.root({options_.model, kv_dtype, salt, adapter_digest})};
  return {.root = hasher_.root({options_.model, kv_dtype, salt})};
}

void PrefixCache::extend(PageChain& chain, std::span<const int32_t> tokens) const {
  const auto page_size = static_cast<size_t>(pool_.page_size());
  const size_t num_pages = tokens.size() / page_size;
  for (size_t i = chain.hashes.size(); i < num_pages; ++i) {
    const PageHash& before = i == 0 ? chain.root : chain.hashes[i - 1];
    chain.hashes.push_back(hasher_.page(before, tokens.subspan(i * page_size, page_size)));
    ++num_hashed_;
  }
}

std::vector<Page> PrefixCache::find(const PageChain& chain, int64_t max_pages) const {
  std::vector<Page> found;
  const int64_t end = std::min(max_pages, std::ssize(chain.hashes));
  for (int64_t i = 0; i < end; ++i) {
    const auto stored = find_page(chain.hashes[i]);
    if (!stored) break;
    found.push_back(*stored);
  }
  return found;
}

std::optional<Page> PrefixCache::find_page(const PageHash& hash) const {
  const auto stored = pages_.find(hash);
  return stored == pages_.end() ? std::nullopt : std::optional(stored->second);
}

void PrefixCache::count_query(int64_t num_tokens, std::span<const Page> pages) {
  ++stats_.num_queries;
  stats_.query_tokens += num_tokens;
  stats_.hit_tokens += std::ssize(pages) * pool_.page_size();
}

void PrefixCache::store(PageChain& chain, std::span<const int32_t> tokens,
                        std::span<const Page> pages, int64_t num_pages) {
  if (num_pages <= chain.num_offered) return;
  extend(chain, tokens);
  store_pages(chain, tokens, pages, chain.num_offered, num_pages);
  chain.num_offered = num_pages;
}

void PrefixCache::store_pages(const PageChain& chain, std::span<const int32_t> tokens,
                              std::span<const Page> pages, int64_t first, int64_t end) {
  ENCORE_CHECK(end <= std::ssize(chain.hashes) && end <= std::ssize(pages));
  // `first` is the first page of the current run of new pages.
  for (int64_t i = first; i < end; ++i) {
    const auto [stored, is_new] = pages_.try_emplace(chain.hashes[i], pages[i]);
    if (is_new) {
      ++stats_.stored_pages;
    } else {
      report_stored(chain, tokens, first, i);
      first = i + 1;
      // Two pages have the same content now. If the stored one is in use, it stays the stored one.
      if (pool_.num_references(stored->second) > 0) continue;
      pool_.forget(std::exchange(stored->second, pages[i]));
    }
    pool_.keep(pages[i]);
    hashes_[pages[i]] = chain.hashes[i];
  }
  report_stored(chain, tokens, first, end);
}

void PrefixCache::forget_idle() {
  std::vector<PageHash> hashes;
  while (!pool_.idle().empty()) {
    const Page page = pool_.idle().front();
    hashes.push_back(hashes_[page]);
    pages_.erase(hashes_[page]);
    pool_.forget(page);
  }
  stats_.evicted_pages += std::ssize(hashes);
  if (!hashes.empty()) report_removed(std::move(hashes));
}

void PrefixCache::report_stored(const PageChain& chain, std::span<const int32_t> tokens,
                                int64_t first, int64_t end) const {
  if (first >= end || !options_.on_event) return;
  const int64_t page_size = pool_.page_size();
  const auto stored = tokens.subspan(first * page_size, (end - first) * page_size);
  options_.on_event({.kind = CacheEvent::Kind::kStored,
                     .hashes = {chain.hashes.begin() + first, chain.hashes.begin() + end},
                     .parent = first == 0 ? chain.root : chain.hashes[first - 1],
                     .tokens = {stored.begin(), stored.end()},
                     .page_size = page_size});
}

void PrefixCache::report_removed(std::vector<PageHash> hashes) const {
  if (!options_.on_event) return;
  options_.on_event({.kind = CacheEvent::Kind::kRemoved, .hashes = std::move(hashes)});
}

}  // namespace encore::kv
