#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

namespace encore::kv {
namespace {

constexpr int64_t kPageSize = 4;
using Pages = std::vector<Page>;

// Returns the `count` tokens `first`, `first` + 1 and so on.
std::vector<int32_t> tokens_from(int32_t first, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i)
    tokens.push_back(first + i);
  return tokens;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  // Allocates the pages of a sequence of these tokens, and stores the full ones as if they were
  // computed.
  Pages compute(const std::vector<int32_t>& tokens, const std::string& salt = "") {
    PageChain chain = cache_.chain("bf16", salt);
    const Pages pages = *pool_.allocate(pool_.pages_for(std::ssize(tokens)));
    cache_.store(chain, tokens, pages, std::ssize(tokens) / kPageSize);
    return pages;
  }
  Pages find(const std::vector<int32_t>& tokens, const std::string& salt = "",
             const std::string& kv_dtype = "bf16", int64_t max_pages = 100) {
    PageChain chain = cache_.chain(kv_dtype, salt);
    cache_.extend(chain, tokens);
    return cache_.find(chain, max_pages);
  }

  std::vector<CacheEvent> events_;
  PagePool pool_{8, kPageSize};
  PrefixCache cache_{pool_, {.model = "m", .on_event = [this](const CacheEvent& event) {
                               events_.push_back(event);
                             }}};
};

TEST_F(PrefixCacheTest, FindsTheFullPagesOfTheLongestPrefix) {
  const Pages pages = compute(tokens_from(0, 11));
  EXPECT_EQ(find(tokens_from(0, 20)), (Pages{pages[0], pages[1]}));
  EXPECT_EQ(find(tokens_from(0, 7)), Pages{pages[0]});
  EXPECT_EQ(find(tokens_from(0, 20), "", "bf16", 1), Pages{pages[0]});
  EXPECT_EQ(find(tokens_from(1, 20)), Pages{});
  std::vector<int32_t> parts = tokens_from(0, 20);
  parts[5] = 77;
  EXPECT_EQ(find(parts), Pages{pages[0]});
  // Tokens 4 to 7 are stored only as the second page, behind tokens 0 to 3, so they are not found
  // at the start.
  EXPECT_EQ(find(tokens_from(4, 8)), Pages{});
}

TEST_F(PrefixCacheTest, SharesNothingBetweenTenantsOrDtypes) {
  const Pages pages = compute(tokens_from(0, 4), "tenant");
  EXPECT_EQ(find(tokens_from(0, 4), "tenant"), pages);
  EXPECT_EQ(find(tokens_from(0, 4), "other"), Pages{});
  EXPECT_EQ(find(tokens_from(0, 4), "tenant", "fp8"), Pages{});
}

TEST_F(PrefixCacheTest, KeepsUnreferencedPagesUntilThePoolNeedsThem) {
  const Pages pages = compute(tokens_from(0, 12));
  pool_.release(pages);
  EXPECT_EQ(pool_.num_idle(), 3);
  EXPECT_EQ(pool_.num_free(), 8);
  EXPECT_EQ(find(tokens_from(0, 12)), pages);
  const Pages others = *pool_.allocate(6);
  // The last page of the sequence is evicted before the page in front of it.
  EXPECT_EQ(find(tokens_from(0, 12)), (Pages{pages[0], pages[1]}));
  EXPECT_EQ(cache_.num_stored(), 2);
  pool_.share(pages[0]);
  EXPECT_FALSE(pool_.allocate(2).has_value());
  EXPECT_EQ(pool_.allocate(1)->size(), 1U);
  EXPECT_EQ(find(tokens_from(0, 12)), Pages{pages[0]});
  EXPECT_EQ(cache_.stats().evicted_pages, 2);
}

TEST_F(PrefixCacheTest, KeepsTheFirstOfTwoPagesWithTheSameContent) {
  const Pages first = compute(tokens_from(0, 4));
  const Pages second = compute(tokens_from(0, 8));
  EXPECT_EQ(find(tokens_from(0, 8)), (Pages{first[0], second[1]}));
  pool_.release(second);
  EXPECT_EQ(pool_.num_idle(), 1);
  EXPECT_EQ(cache_.stats().stored_pages, 2);
}

TEST_F(PrefixCacheTest, PrefersAPageInUseToAnIdleOneWithTheSameContent) {
  pool_.release(compute(tokens_from(0, 4)));
  const Pages second = compute(tokens_from(0, 8));
  EXPECT_EQ(find(tokens_from(0, 8)), second);
  EXPECT_EQ(pool_.num_idle(), 0);
  EXPECT_EQ(cache_.num_stored(), 2);
  ASSERT_EQ(events_.size(), 2U);  // the first page is reported once
  EXPECT_EQ(events_[1].tokens, tokens_from(4, 4));
}

TEST_F(PrefixCacheTest, StoresPagesAsTheyFill) {
  std::vector<int32_t> tokens = tokens_from(0, 6);
  PageChain chain = cache_.chain("bf16", "");
  const Pages pages = *pool_.allocate(3);
  cache_.store(chain, tokens, pages, 1);
  cache_.store(chain, tokens, pages, 1);
  EXPECT_EQ(cache_.num_stored(), 1);
  tokens = tokens_from(0, 12);
  cache_.store(chain, tokens, pages, 3);
  EXPECT_EQ(find(tokens_from(0, 12)), pages);
}

TEST_F(PrefixCacheTest, TellsWhatItStoresAndRemoves) {
  const Pages pages = compute(tokens_from(0, 12));
  ASSERT_EQ(events_.size(), 1U);
  PageChain chain = cache_.chain("bf16", "");
  cache_.extend(chain, tokens_from(0, 12));
  EXPECT_EQ(events_[0].kind, CacheEvent::Kind::kStored);
  EXPECT_EQ(events_[0].hashes, chain.hashes);
  EXPECT_EQ(events_[0].parent, chain.root);
  EXPECT_EQ(events_[0].tokens, tokens_from(0, 12));
  EXPECT_EQ(events_[0].page_size, kPageSize);
  pool_.release(pages);
  const Pages others = *pool_.allocate(6);
  ASSERT_EQ(events_.size(), 2U);
  EXPECT_EQ(events_[1].kind, CacheEvent::Kind::kRemoved);
  EXPECT_EQ(events_[1].hashes, std::vector<PageHash>{chain.hashes[2]});
  pool_.release(others);
  (void)compute(tokens_from(0, 16));
  // The first two pages are stored already, so only the last two are reported.
  ASSERT_EQ(events_.size(), 3U);
  EXPECT_EQ(events_[2].parent, chain.hashes[1]);
  EXPECT_EQ(events_[2].tokens, tokens_from(8, 8));
}

TEST_F(PrefixCacheTest, ForgetsIdlePagesAndKeepsThoseInUse) {
  const Pages used = compute(tokens_from(0, 4));
  pool_.release(compute(tokens_from(50, 12)));
  events_.clear();
  cache_.forget_idle();
  EXPECT_EQ(find(tokens_from(0, 4)), used);
  EXPECT_EQ(find(tokens_from(50, 12)), Pages{});
  EXPECT_EQ(pool_.num_empty(), 7);
  ASSERT_EQ(events_.size(), 1U);
  EXPECT_EQ(events_[0].kind, CacheEvent::Kind::kRemoved);
  EXPECT_EQ(events_[0].hashes.size(), 3U);
  EXPECT_EQ(cache_.stats().evicted_pages, 3);
  cache_.forget_idle();
  EXPECT_EQ(events_.size(), 1U);
}

TEST(PrefixCache, LeavesThePoolWithoutIdlePagesWhenItEnds) {
  PagePool pool(2, kPageSize);
  {
    PrefixCache cache(pool, {.model = "m"});
    PageChain chain = cache.chain("bf16", "");
    const Pages pages = *pool.allocate(1);
    cache.store(chain, tokens_from(0, 4), pages, 1);
    pool.release(pages);
    EXPECT_EQ(pool.num_idle(), 1);
  }
  EXPECT_EQ(pool.num_empty(), 2);
}

TEST(PrefixCache, NeedsNobodyWhoListens) {
  PagePool pool(2, kPageSize);
  PrefixCache cache(pool, {.model = "m"});
  const std::vector<int32_t> tokens = tokens_from(0, 8);
  PageChain chain = cache.chain("bf16", "");
  const Pages pages = *pool.allocate(2);
  cache.store(chain, tokens, pages, 2);
  pool.release(pages);
  (void)*pool.allocate(1);
  EXPECT_EQ(cache.num_stored(), 1);
  cache.forget_idle();
  EXPECT_EQ(cache.num_stored(), 0);
  EXPECT_EQ(cache.stats().evicted_pages, 2);
}

TEST_F(PrefixCacheTest, CountsQueriesAndHits) {
  (void)compute(tokens_from(0, 8));
  const Pages found = find(tokens_from(0, 10));
  cache_.count_query(10, found);
  cache_.count_query(5, {});
  EXPECT_EQ(cache_.stats().num_queries, 2);
  EXPECT_EQ(cache_.stats().query_tokens, 15);
  EXPECT_EQ(cache_.stats().hit_tokens, 8);
}

}  // namespace
}  // namespace encore::kv
