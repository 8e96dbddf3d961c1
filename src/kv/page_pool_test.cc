#include "kv/page_pool.h"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace encore::kv {
namespace {

TEST(PagePool, GivesAllOrNothing) {
  PagePool pool(4, 32);
  EXPECT_FALSE(pool.allocate(5).has_value());
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(pool.allocate(4)->size(), 4U);
  EXPECT_FALSE(pool.allocate(1).has_value());
  EXPECT_TRUE(pool.allocate(0).has_value());
}

TEST(PagePool, RoundsTokensUpToPages) {
  const PagePool pool(4, 32);
  EXPECT_EQ(pool.pages_for(0), 0);
  EXPECT_EQ(pool.pages_for(1), 1);
  EXPECT_EQ(pool.pages_for(32), 1);
  EXPECT_EQ(pool.pages_for(33), 2);
}

TEST(PagePool, NeverGivesAPageTwiceInARandomTrace) {
  std::mt19937 random(1);
  PagePool pool(64, 16);
  std::vector<std::vector<Page>> held;
  std::set<Page> used;
  for (int i = 0; i < 10000; ++i) {
    if (random() % 2 == 0) {
      if (auto pages = pool.allocate(random() % 9)) {
        for (const Page page : *pages)
          EXPECT_TRUE(used.insert(page).second);
        held.push_back(std::move(*pages));
      }
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      for (const Page page : held.back())
        used.erase(page);
      pool.release(held.back());
      held.pop_back();
    }
    ASSERT_EQ(pool.num_free() + static_cast<int64_t>(used.size()), 64);
  }
}

TEST(PagePool, FreesASharedPageWithItsLastReference) {
  PagePool pool(4, 16);
  const std::vector<Page> pages = *pool.allocate(2);
  pool.share(pages[0]);
  pool.release(pages);
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.num_references(pages[0]), 1);
  pool.release({pages[0]});
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(PagePool, KeepsContentUntilNoEmptyPageIsLeft) {
  PagePool pool(4, 16);
  std::vector<Page> evicted;
  pool.on_evict([&](Page page) { evicted.push_back(page); });
  const std::vector<Page> pages = *pool.allocate(3);
  for (const Page page : pages)
    pool.keep(page);
  pool.release(pages);
  EXPECT_EQ(pool.num_idle(), 3);
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(pool.allocate(1), std::vector<Page>{3});
  EXPECT_TRUE(evicted.empty());
  // The last page of a sequence is evicted first, as the pages before it are of use without it.
  EXPECT_EQ(pool.allocate(2)->size(), 2U);
  EXPECT_EQ(evicted, (std::vector<Page>{pages[2], pages[1]}));
  EXPECT_EQ(pool.num_idle(), 1);
}

TEST(PagePool, EvictsTheLeastRecentlyUsedPageFirst) {
  PagePool pool(3, 16);
  const std::vector<Page> pages = *pool.allocate(3);
  for (const Page page : pages) {
    pool.keep(page);
    pool.release({page});
  }
  pool.share(pages[0]);
  EXPECT_EQ(pool.num_free(), 2);
  pool.release({pages[0]});
  EXPECT_EQ(pool.allocate(2), (std::vector<Page>{pages[2], pages[1]}));
  EXPECT_EQ(pool.idle(), std::list<Page>{pages[0]});
}

TEST(PagePool, ForgetsContentOfPagesIdleOrInUse) {
  PagePool pool(2, 16);
  const std::vector<Page> pages = *pool.allocate(2);
  pool.keep(pages[0]);
  pool.keep(pages[1]);
  pool.release({pages[0]});
  pool.forget(pages[0]);
  EXPECT_EQ(pool.num_empty(), 1);
  pool.forget(pages[1]);
  pool.release({pages[1]});
  EXPECT_EQ(pool.num_empty(), 2);
}

TEST(PagePool, ShuffledGivesEveryPageOnceInAnotherOrder) {
  PagePool pool(64, 16);
  pool.shuffle(3);
  const std::vector<Page> pages = *pool.allocate(64);
  EXPECT_FALSE(std::is_sorted(pages.begin(), pages.end()));
  EXPECT_EQ(std::set<Page>(pages.begin(), pages.end()).size(), 64U);
}

TEST(PagePoolDeathTest, RefusesAPageReleasedTwice) {
  PagePool pool(2, 16);
  const auto pages = *pool.allocate(1);
  pool.release(pages);
  EXPECT_DEATH(pool.release(pages), "released twice");
}

TEST(PagePoolDeathTest, SharesNoEmptyPage) {
  PagePool pool(2, 16);
  EXPECT_DEATH(pool.share(1), "shared but empty");
}

}  // namespace
}  // namespace encore::kv
