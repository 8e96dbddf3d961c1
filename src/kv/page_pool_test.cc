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

}  // namespace
}  // namespace encore::kv
