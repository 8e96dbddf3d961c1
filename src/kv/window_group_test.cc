#include "kv/window_group.h"

#include <numeric>

#include <gtest/gtest.h>

namespace encore::kv {
namespace {

using PlacedPages = std::vector<Page>;
constexpr int64_t kWindowPageSize = 4;

// A token sees 6 tokens, including itself, which lie in two or three pages.
class WindowGroupTest : public ::testing::Test {
 protected:
  PageChain chain_of(int64_t num_tokens) {
    std::vector<int32_t> tokens(static_cast<size_t>(num_tokens));
    std::iota(tokens.begin(), tokens.end(), 0);
    PageChain chain = hashes_.chain("bf16", "");
    hashes_.extend(chain, tokens);
    return chain;
  }

  WindowRule rule_{.window = 6, .page_size = kWindowPageSize, .step_tokens = 16};
  WindowGroup group_{12, rule_, true};
  PagePool other_pool_{1, kWindowPageSize};
  PrefixCache hashes_{other_pool_};
  WindowPages held_;
};

TEST_F(WindowGroupTest, GivesBackThePagesThatNoLaterTokenSees) {
  ASSERT_TRUE(group_.grow(held_, 20));
  EXPECT_EQ(held_.pages, (PlacedPages{0, 1, 2, 3, 4}));
  group_.leave_behind(held_, 8);  // token 8 sees tokens from 3 on
  EXPECT_EQ(group_.pool().num_empty(), 7);
  group_.leave_behind(held_, 9);
  EXPECT_EQ(held_.pages, (PlacedPages{kNoPage, 1, 2, 3, 4}));
  group_.leave_behind(held_, 13);
  EXPECT_EQ(held_.first, 2);
  EXPECT_EQ(held_.num_held(), 3);
  EXPECT_EQ(group_.pool().num_empty(), 9);
  ASSERT_TRUE(group_.grow(held_, 24));
  EXPECT_EQ(held_.pages, (PlacedPages{kNoPage, kNoPage, 2, 3, 4, 1}));
  group_.release(held_);
  EXPECT_EQ(group_.pool().num_empty(), 12);
  EXPECT_TRUE(held_.pages.empty());
}

TEST_F(WindowGroupTest, GrowsAsAWholeOrNotAtAll) {
  ASSERT_TRUE(group_.grow(held_, 40));
  EXPECT_EQ(group_.num_missing(held_, 60), 5);
  EXPECT_FALSE(group_.grow(held_, 60));
  EXPECT_EQ(group_.pool().num_empty(), 2);
  group_.leave_behind(held_, 40);
  EXPECT_TRUE(group_.grow(held_, 60));
}

TEST_F(WindowGroupTest, StartsBehindThePagesThatTheNextTokenSees) {
  const PageChain chain = chain_of(24);
  ASSERT_TRUE(group_.grow(held_, 24));
  group_.store(held_, chain, 6);
  EXPECT_EQ(group_.num_startable(chain, 6), 6);
  WindowPages second;
  group_.start(second, chain, 4);  // its next token, 16, sees tokens from 11 on
  EXPECT_EQ(second.pages, (PlacedPages{kNoPage, kNoPage, 2, 3}));
  EXPECT_EQ(group_.pool().num_references(2), 2);
  group_.release(held_);
  group_.release(second);
  EXPECT_EQ(group_.pool().num_idle(), 6);
}

// Page 3 is gone. A sequence behind 4 or 5 pages would see it with its next token, and so cannot
// start there.
TEST_F(WindowGroupTest, StartsWhereNoPageThatIsSeenIsMissing) {
  const PageChain chain = chain_of(24);
  ASSERT_TRUE(group_.grow(held_, 12));
  group_.store(held_, chain, 3);
  ASSERT_TRUE(group_.grow(held_, 24));
  // Token 21 sees tokens from 16 on, so pages 0 to 3 go, and page 3 was not stored.
  group_.leave_behind(held_, 21);
  group_.store(held_, chain, 6);
  EXPECT_EQ(group_.num_startable(chain, 6), 6);
  EXPECT_EQ(group_.num_startable(chain, 5), 3);
  EXPECT_EQ(group_.num_startable(chain, 4), 3);
  EXPECT_EQ(group_.num_startable(chain, 2), 2);
  group_.release(held_);
  group_.forget_idle();
  EXPECT_EQ(group_.num_startable(chain, 6), 0);
  EXPECT_EQ(group_.pool().num_empty(), 12);
}

TEST_F(WindowGroupTest, WithoutACacheNothingIsFound) {
  WindowGroup group(12, rule_, false);
  const PageChain chain = chain_of(24);
  ASSERT_TRUE(group.grow(held_, 24));
  group.store(held_, chain, 6);
  EXPECT_EQ(group.num_startable(chain, 6), 0);
  group.release(held_);
  EXPECT_EQ(group.pool().num_empty(), 12);
}

TEST(WindowRule, SaysHowManyPagesAreEnough) {
  const WindowRule rule{.window = 1024, .page_size = 32, .step_tokens = 2048};
  EXPECT_EQ(rule.first_place(1000), 0);
  EXPECT_EQ(rule.first_place(1023 + 31), 0);
  EXPECT_EQ(rule.first_place(1023 + 32), 1);
  EXPECT_EQ(rule.pages_a_step(), 64);
  EXPECT_EQ(rule.pages_each(), 33 + 2 + 8);
  // 64 sequences want 64 * 1024 pages in the layers that keep all tokens, and 64 * 43 + 64 in the
  // group: 43 for each sequence, and 64 for one step. The group gets the same share of its pages as
  // those layers get of theirs, but at least 43 + 64, enough for one sequence, and at most as many
  // pages as those layers get.
  EXPECT_EQ(rule.pages_beside(64 * 1024, 64 * 1024, 64), 64 * 43 + 64);
  EXPECT_EQ(rule.pages_beside(32 * 1024, 64 * 1024, 64), 32 * 43 + 32);
  EXPECT_EQ(rule.pages_beside(1024, 64 * 1024, 64), 43 + 64);
  EXPECT_EQ(rule.pages_beside(20, 64 * 1024, 64), 20);
}

}  // namespace
}  // namespace encore::kv
