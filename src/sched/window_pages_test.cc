// Tests the scheduler with layers with a window that have pages of their own: how many pages a
// sequence holds, and which prefixes are found.
#include <algorithm>

#include <gtest/gtest.h>

#include "sched/testing/run_step.h"

namespace encore::sched {
namespace {

using testing::run_step;

// The page size. Units: tokens. A token sees 6 tokens, including itself.
constexpr int64_t kPage = 4;

class WindowPagesTest : public ::testing::Test {
 protected:
  Sequence sequence(SequenceId id, int64_t prompt, int64_t max_length, int32_t token = 7) {
    return {.id = id,
            .tokens = std::vector<int32_t>(static_cast<size_t>(prompt), token),
            .max_length = max_length,
            .chain = cache_.chain("bf16", "")};
  }
  const Sequence& of(SequenceId id) { return *scheduler_.find(id); }

  kv::PagePool pool_{100, kPage};
  kv::PrefixCache cache_{pool_};
  kv::WindowRule rule_{.window = 6, .page_size = kPage, .step_tokens = 16};
  kv::WindowGroup window_{40, rule_, true};
  Scheduler scheduler_{pool_,
                       {.max_num_tokens = 16, .max_batch_size = 4, .prompt_share = 1},
                       &cache_,
                       nullptr,
                       &window_};
};

TEST_F(WindowPagesTest, APromptGetsThePagesOfEachStepAndLeavesThoseBehindItsWindow) {
  scheduler_.add(sequence(1, 40, 60));
  // The step computes tokens 0 to 15. The next token, 16, sees tokens from 11 on.
  run_step(scheduler_, scheduler_.plan());
  EXPECT_GE(of(1).pages.size(), 10U);
  EXPECT_EQ(of(1).window_pages.first, 2);
  run_step(scheduler_, scheduler_.plan());
  EXPECT_EQ(of(1).window_pages.first, 6);
  EXPECT_EQ(of(1).window_pages.pages[5], kv::kNoPage);
  scheduler_.remove(1);
  EXPECT_EQ(window_.pool().num_free(), 40);
}

TEST_F(WindowPagesTest, APrefixCountsAsFarAsThePagesOfItsWindowAreThere) {
  scheduler_.add(sequence(1, 24, 30));
  for (int i = 0; i < 2; ++i)
    run_step(scheduler_, scheduler_.plan());
  scheduler_.remove(1);
  EXPECT_EQ(window_.pool().num_idle(), 6);
  // Another holder gets three of the sequence's pages, among them some that its window saw.
  kv::WindowPages other;
  ASSERT_TRUE(window_.grow(other, (40 - 3) * kPage));
  EXPECT_EQ(window_.pool().num_idle(), 3);
  Sequence second = sequence(2, 24, 30);
  cache_.extend(second.chain, second.tokens);
  EXPECT_EQ(cache_.find(second.chain, 5).size(), 5U);
  const int64_t startable = window_.num_startable(second.chain, 5);
  window_.release(other);
  scheduler_.add(std::move(second));
  const Plan plan = scheduler_.plan();
  ASSERT_EQ(plan.rows.size(), 1U);
  EXPECT_EQ(plan.rows[0].first, startable * kPage);
  EXPECT_LT(startable, 5);
}

// The pool has enough pages for one of the two sequences, whatever its length.
TEST_F(WindowPagesTest, ANewcomerWaitsForPagesThatItsWindowWillNeed) {
  kv::WindowGroup window(rule_.pages_for(1), rule_, true);
  Scheduler scheduler(pool_, {.max_num_tokens = 16, .max_batch_size = 4}, &cache_, nullptr,
                      &window);
  scheduler.add(sequence(1, 60, 80, 1));
  scheduler.add(sequence(2, 60, 80, 2));
  EXPECT_FALSE(scheduler.can_fit(500));
  while (scheduler.find(1)->known() < 80) {
    run_step(scheduler, scheduler.plan());
    EXPECT_EQ(scheduler.num_running(), 1);
  }
  scheduler.remove(1);
  run_step(scheduler, scheduler.plan());
  EXPECT_EQ(scheduler.num_running(), 1);
  EXPECT_EQ(scheduler.num_preemptions(), 0);
}

TEST_F(WindowPagesTest, APageIsKeptAsLongAsATokenThatIsChosenAgainSeesIt) {
  scheduler_.add(sequence(1, 9, 60));
  run_step(scheduler_, scheduler_.plan());
  Sequence& some = *scheduler_.find(1);
  while (some.launched < 13)
    run_step(scheduler_, scheduler_.plan());
  // When the step of token 12 was launched, its result, token 13, could still be chosen again from
  // token 12, which sees tokens from 7 on, in page 1. One step later, no token before 13 is
  // computed again, and token 13 sees tokens from 8 on, in page 2.
  EXPECT_EQ(some.window_pages.first, 1);
  run_step(scheduler_, scheduler_.plan());
  EXPECT_EQ(some.window_pages.first, 2);
}

// The test has the numbers of Gemma 3 27B: 10 of 62 layers keep all tokens, and the others have
// windows of 1,024 tokens.
TEST(WindowPages, OfAModelOfGemmasShapeTakeAQuarterOfThePagesAtMost) {
  constexpr int64_t kWholeLayers = 10;
  constexpr int64_t kWindowLayers = 52;
  constexpr int64_t kLength = 32768;
  for (const int64_t num_sequences : {1, 4}) {
    const kv::WindowRule rule{.window = 1024, .page_size = 32, .step_tokens = 2048};
    const int64_t num_pages = num_sequences * kLength / 32;
    kv::PagePool pool(num_pages, 32);
    const int64_t num_window_pages = rule.pages_beside(num_pages, num_pages, num_sequences);
    kv::WindowGroup window(num_window_pages, rule, false);
    EXPECT_LE(kWholeLayers * num_pages + kWindowLayers * num_window_pages,
              (kWholeLayers + kWindowLayers) * num_pages / 4);
    // All sequences run to their ends, and none loses its pages.
    Scheduler scheduler(pool, {.max_num_tokens = 2048, .max_batch_size = num_sequences}, nullptr,
                        nullptr, &window);
    for (SequenceId id = 1; id <= num_sequences; ++id) {
      scheduler.add(
          {.id = id, .tokens = std::vector<int32_t>(kLength - 50, 7), .max_length = kLength});
    }
    int64_t most_held = 0;
    while (!scheduler.idle()) {
      const Plan plan = scheduler.plan();
      ASSERT_FALSE(plan.rows.empty());
      most_held = std::max(most_held, num_window_pages - window.pool().num_free());
      run_step(scheduler, plan);
      for (const ScheduledTokens& row : plan.rows) {
        const Sequence* const some = scheduler.find(row.sequence);
        if (some != nullptr && some->known() >= some->max_length) scheduler.remove(row.sequence);
      }
    }
    EXPECT_EQ(scheduler.num_preemptions(), 0);
    EXPECT_GT(most_held, num_window_pages / 2);
    EXPECT_EQ(window.pool().num_free(), num_window_pages);
  }
}

}  // namespace
}  // namespace encore::sched
