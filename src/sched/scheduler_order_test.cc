// Tests the order in which sequences are scheduled, and which of them start with pages of other
// sequences.
#include <algorithm>

#include <gtest/gtest.h>

#include "sched/scheduler.h"
#include "sched/testing/run_step.h"

namespace encore::sched {
namespace {

using Rows = std::vector<ScheduledTokens>;
using testing::run_step;

constexpr int64_t kPageSize = 4;

bool runs(const Scheduler& scheduler, SequenceId id) {
  return std::ranges::count(scheduler.running(), scheduler.find(id)) > 0;
}

class SchedulerOrderTest : public ::testing::Test {
 protected:
  Sequence sequence(SequenceId id, std::vector<int32_t> tokens, int64_t num_more = 10,
                    int32_t priority = 0) {
    return {.id = id,
            .priority = priority,
            .tokens = tokens,
            .max_length = std::ssize(tokens) + num_more,
            .chain = cache_.chain("bf16", "")};
  }
  static std::vector<int32_t> tokens(int64_t count, int32_t token) {
    return std::vector<int32_t>(static_cast<size_t>(count), token);
  }

  kv::PagePool pool_{12, kPageSize};
  kv::PrefixCache cache_{pool_};
  Scheduler scheduler_{pool_, {.max_num_tokens = 16, .max_batch_size = 4}, &cache_};
};

TEST_F(SchedulerOrderTest, AdmitsByPriorityAndThenByArrival) {
  Scheduler scheduler(pool_, {.max_num_tokens = 16, .max_batch_size = 2});
  scheduler.add(sequence(1, tokens(3, 1), 10, 5));
  scheduler.add(sequence(2, tokens(3, 2), 10, 0));
  scheduler.add(sequence(3, tokens(3, 3), 10, -1));
  scheduler.add(sequence(4, tokens(3, 4), 10, -1));
  EXPECT_EQ(scheduler.plan().rows, (Rows{{3, 0, 3}, {4, 0, 3}}));
  scheduler.remove(3);
  EXPECT_EQ(scheduler.plan().rows, (Rows{{4, 0, 3}, {2, 0, 3}}));
}

TEST_F(SchedulerOrderTest, GivesRoomOfAStepToTheFirstPriority) {
  Scheduler scheduler(pool_, {.max_num_tokens = 8, .max_batch_size = 4});
  scheduler.add(sequence(1, tokens(10, 1), 2, 1));
  run_step(scheduler, scheduler.plan());
  scheduler.add(sequence(2, tokens(7, 2), 2, 0));
  EXPECT_EQ(scheduler.plan().rows, (Rows{{2, 0, 7}, {1, 8, 1}}));
}

TEST_F(SchedulerOrderTest, ASequenceKeepsItsRowAndTheLastFillsAGap) {
  for (SequenceId id = 1; id <= 4; ++id)
    scheduler_.add(sequence(id, tokens(1, static_cast<int32_t>(id)), 9));
  run_step(scheduler_, scheduler_.plan());
  scheduler_.remove(2);
  Plan plan = scheduler_.plan();
  Scheduler::keep_rows(plan);
  EXPECT_EQ(plan.rows, (Rows{{1, 1, 1}, {4, 1, 1}, {3, 1, 1}}));
  run_step(scheduler_, plan);
  scheduler_.add(sequence(5, tokens(2, 5), 9));
  plan = scheduler_.plan();
  EXPECT_EQ(plan.rows.back(), (ScheduledTokens{5, 0, 2}));
  Scheduler::keep_rows(plan);
  EXPECT_EQ(plan.rows, (Rows{{1, 2, 1}, {4, 2, 1}, {3, 2, 1}, {5, 0, 2}}));
}

TEST_F(SchedulerOrderTest, PreemptsTheYoungestOfTheLastPriority) {
  kv::PagePool pool(7, kPageSize);
  Scheduler scheduler(pool, {.max_num_tokens = 16, .max_batch_size = 4});
  scheduler.add(sequence(1, tokens(2, 1), 20, 1));
  scheduler.add(sequence(2, tokens(2, 2), 20, 2));
  scheduler.add(sequence(3, tokens(2, 3), 20, 2));
  scheduler.add(sequence(4, tokens(2, 4), 20, 0));
  while (scheduler.num_preemptions() == 0)
    run_step(scheduler, scheduler.plan());
  EXPECT_FALSE(runs(scheduler, 3));
  while (scheduler.num_preemptions() == 1)
    run_step(scheduler, scheduler.plan());
  EXPECT_FALSE(runs(scheduler, 2));
  EXPECT_TRUE(runs(scheduler, 4));
}

TEST_F(SchedulerOrderTest, StartsBehindTheTokensThatAreCached) {
  scheduler_.add(sequence(1, tokens(10, 1)));
  Plan plan = scheduler_.plan();
  EXPECT_EQ(cache_.num_stored(), 0);
  run_step(scheduler_, plan);
  EXPECT_EQ(cache_.num_stored(), 2);
  scheduler_.add(sequence(2, tokens(10, 1)));
  plan = scheduler_.plan();
  EXPECT_EQ(plan.rows, (Rows{{1, 10, 1}, {2, 8, 2}}));
  EXPECT_TRUE(plan.has_new_pages);
  EXPECT_EQ(scheduler_.find(2)->num_cached, 8);
  EXPECT_EQ(scheduler_.find(2)->pages[1], scheduler_.find(1)->pages[1]);
  EXPECT_NE(scheduler_.find(2)->pages[2], scheduler_.find(1)->pages[2]);
  scheduler_.remove(1);
  scheduler_.remove(2);
  EXPECT_EQ(pool_.num_free(), 12);
  EXPECT_EQ(pool_.num_idle(), 2);
}

TEST_F(SchedulerOrderTest, ComputesTheLastTokenOfAPromptThatIsCached) {
  scheduler_.add(sequence(1, tokens(8, 1)));
  run_step(scheduler_, scheduler_.plan());
  scheduler_.remove(1);
  scheduler_.add(sequence(2, tokens(8, 1)));
  EXPECT_EQ(scheduler_.plan().rows, (Rows{{2, 4, 4}}));
}

TEST_F(SchedulerOrderTest, WaitsForOneThatIsAboutToComputeItsPrefixAndLetsOthersPass) {
  std::vector<int32_t> longer = tokens(21, 1);
  scheduler_.add(sequence(1, longer, 2));
  scheduler_.add(sequence(2, tokens(18, 1), 2));
  scheduler_.add(sequence(3, tokens(3, 3), 2));
  Plan plan = scheduler_.plan();
  EXPECT_EQ(plan.rows, (Rows{{3, 0, 3}, {1, 0, 13}}));
  EXPECT_FALSE(runs(scheduler_, 2));
  run_step(scheduler_, plan);
  plan = scheduler_.plan();
  EXPECT_EQ(plan.rows, (Rows{{3, 3, 1}, {1, 13, 8}}));
  run_step(scheduler_, plan);
  // The second sequence shares its first 16 tokens, four full pages, with the first sequence. These
  // pages are computed by now, so the second starts behind them.
  EXPECT_EQ(scheduler_.plan().rows, (Rows{{1, 21, 1}, {3, 4, 1}, {2, 16, 2}}));
}

TEST_F(SchedulerOrderTest, ThoseWhoWaitForAPrefixHoldNoPlace) {
  Scheduler scheduler(pool_, {.max_num_tokens = 16, .max_batch_size = 2}, &cache_);
  for (const SequenceId id : {1, 2, 3})
    scheduler.add(sequence(id, tokens(21, 1), 2));
  scheduler.add(sequence(4, tokens(3, 4), 2));
  EXPECT_EQ(scheduler.plan().rows, (Rows{{4, 0, 3}, {1, 0, 13}}));
}

// Counts how many times it is asked whether a sequence may start.
class CountingGate final : public AdmissionGate {
 public:
  bool admits(const Sequence& /*sequence*/) override {
    ++num_asked;
    return true;
  }
  void preempted(const Sequence& /*sequence*/) override {}

  int num_asked = 0;
};

TEST_F(SchedulerOrderTest, AsksTheGateForNobodyThatNoPlaceIsLeftFor) {
  CountingGate gate;
  Scheduler scheduler(pool_, {.max_num_tokens = 16, .max_batch_size = 2}, &cache_, &gate);
  for (const SequenceId id : {1, 2, 3, 4})
    scheduler.add(sequence(id, tokens(3, static_cast<int32_t>(id))));
  run_step(scheduler, scheduler.plan());
  EXPECT_EQ(gate.num_asked, 2);
  run_step(scheduler, scheduler.plan());
  EXPECT_EQ(gate.num_asked, 2);
}

TEST_F(SchedulerOrderTest, WaitsForNoneThatComesLater) {
  scheduler_.add(sequence(1, tokens(21, 1), 2, 1));
  run_step(scheduler_, scheduler_.plan());
  scheduler_.add(sequence(2, tokens(21, 1), 2, 0));
  EXPECT_EQ(scheduler_.plan().rows, (Rows{{2, 16, 5}, {1, 16, 5}}));
}

TEST_F(SchedulerOrderTest, ComputesItselfWhatAnAbortedSequenceWasAboutTo) {
  scheduler_.add(sequence(1, tokens(12, 1)));
  scheduler_.add(sequence(2, tokens(11, 1)));
  EXPECT_EQ(scheduler_.plan().rows, (Rows{{1, 0, 12}}));
  scheduler_.remove(1);
  EXPECT_EQ(scheduler_.plan().rows, (Rows{{2, 0, 11}}));
}

TEST_F(SchedulerOrderTest, StoresGeneratedPagesWhenTheyAreCollected) {
  scheduler_.add(sequence(1, tokens(3, 1)));
  run_step(scheduler_, scheduler_.plan());
  const Plan first = scheduler_.plan();
  scheduler_.commit(first);  // the fourth token fills a page
  const Plan second = scheduler_.plan();
  scheduler_.commit(second);
  EXPECT_EQ(cache_.num_stored(), 0);
  (void)scheduler_.find(1)->collect(first.rows[0], 7);
  scheduler_.remove(1);
  EXPECT_EQ(cache_.num_stored(), 1);
}

TEST_F(SchedulerOrderTest, StoresThePagesOfOneThatGivesUpItsPlace) {
  Scheduler scheduler(
      pool_, {.max_num_tokens = 16, .max_batch_size = 1, .preempts_by_priority = true}, &cache_);
  scheduler.add(sequence(1, tokens(3, 1), 10, 1));
  run_step(scheduler, scheduler.plan());
  const Plan first = scheduler.plan();
  scheduler.commit(first);  // the fourth token fills a page
  scheduler.commit(scheduler.plan());
  (void)scheduler.find(1)->collect(first.rows[0], 7);
  EXPECT_EQ(cache_.num_stored(), 0);
  scheduler.add(sequence(2, tokens(5, 9), 2, 0));
  EXPECT_EQ(scheduler.plan().rows, (Rows{{2, 0, 5}}));
  EXPECT_EQ(scheduler.num_preemptions(), 1);
  EXPECT_EQ(cache_.num_stored(), 1);
}

// A step was launched for the token behind a stop token, but the device does not compute that
// token.
TEST_F(SchedulerOrderTest, StoresNoPageThatAStopTokenCuts) {
  scheduler_.add(sequence(1, tokens(3, 1)));
  const Plan first = scheduler_.plan();
  scheduler_.commit(first);
  scheduler_.commit(scheduler_.plan());
  EXPECT_TRUE(scheduler_.find(1)->collect(first.rows[0], 50));  // 50 is a stop token
  EXPECT_EQ(scheduler_.find(1)->launched, 4);
  scheduler_.remove(1);
  EXPECT_EQ(cache_.num_stored(), 0);
}

TEST_F(SchedulerOrderTest, APreemptedSequenceFindsItsPagesAgain) {
  kv::PagePool pool(5, kPageSize);
  kv::PrefixCache cache(pool);
  Scheduler scheduler(pool, {.max_num_tokens = 16, .max_batch_size = 4}, &cache);
  scheduler.add(sequence(1, tokens(5, 1), 5));
  scheduler.add(sequence(2, tokens(5, 2), 8));
  while (scheduler.num_preemptions() == 0)
    run_step(scheduler, scheduler.plan());
  EXPECT_TRUE(scheduler.find(2)->pages.empty());
  scheduler.remove(1);
  EXPECT_EQ(scheduler.plan().rows.at(0).first, 4);
  EXPECT_EQ(cache.stats().num_queries, 2);
}

}  // namespace
}  // namespace encore::sched
