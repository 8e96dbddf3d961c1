#include "sched/scheduler.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace encore::sched {
namespace {

using Runs = std::vector<Run>;

TEST(Scheduler, RunsAPromptInChunksBesideThoseThatGenerate) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 4});
  ASSERT_TRUE(scheduler.add(1, 3, 20));
  Plan plan = scheduler.plan();
  EXPECT_EQ(plan.runs, (Runs{{1, 0, 3}}));
  scheduler.commit(plan);
  ASSERT_TRUE(scheduler.add(2, 25, 30));
  for (int chunk = 0; chunk < 2; ++chunk) {
    plan = scheduler.plan();
    EXPECT_EQ(plan.runs, (Runs{{1, 3 + chunk, 1}, {2, 9 * chunk, 9}}));
    EXPECT_EQ(plan.uniform_q(1), 0);
    scheduler.commit(plan);
  }
  plan = scheduler.plan();
  EXPECT_EQ(plan.runs, (Runs{{1, 5, 1}, {2, 18, 7}}));
}

TEST(Scheduler, KnowsAUniformStep) {
  EXPECT_EQ((Plan{{{1, 5, 1}, {2, 7, 1}}}).uniform_q(1), 1);
  EXPECT_EQ((Plan{{{1, 5, 3}, {2, 7, 3}}}).uniform_q(4), 3);
  EXPECT_EQ((Plan{{{1, 5, 3}, {2, 7, 3}}}).uniform_q(2), 0);
  EXPECT_EQ((Plan{{{1, 5, 1}, {2, 7, 2}}}).uniform_q(4), 0);
  EXPECT_EQ(Plan{}.uniform_q(4), 0);
}

TEST(Scheduler, RefusesWhatCanNeverRunAndQueuesWhatCannotYet) {
  kv::PagePool pool(4, 16);
  Scheduler scheduler(pool, {});
  EXPECT_FALSE(scheduler.add(1, 10, 65));
  EXPECT_TRUE(scheduler.add(2, 10, 48));
  EXPECT_TRUE(scheduler.add(3, 10, 32));
  EXPECT_EQ(scheduler.plan().runs.size(), 1U);
  EXPECT_EQ(scheduler.num_waiting(), 1);
  scheduler.remove(2);
  EXPECT_EQ(scheduler.plan().runs, (Runs{{3, 0, 10}}));
}

TEST(Scheduler, NamesThePagesThatHoldWhatIsComputed) {
  kv::PagePool pool(8, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 32, .max_batch_size = 4});
  ASSERT_TRUE(scheduler.add(1, 16, 64));  // grows to four pages
  ASSERT_TRUE(scheduler.add(2, 40, 48));  // in chunks
  EXPECT_TRUE(scheduler.pages_in_use().empty());
  scheduler.commit(scheduler.plan());
  // All 16 tokens of the first fill a page; 16 of the second do too.
  const auto& first = scheduler.counts(1).pages;
  const auto& second = scheduler.counts(2).pages;
  EXPECT_EQ(scheduler.pages_in_use(), (std::vector<kv::Page>{first[0], second[0]}));
  scheduler.commit(scheduler.plan());
  EXPECT_EQ(scheduler.pages_in_use(),
            (std::vector<kv::Page>{first[0], first[1], second[0], second[1], second[2]}));
  scheduler.remove(2);
  EXPECT_EQ(scheduler.pages_in_use(), (std::vector<kv::Page>{first[0], first[1]}));
}

TEST(Scheduler, KeepsItsPromisesInRandomTraces) {
  std::mt19937 random(7);
  kv::PagePool pool(40, 8);
  const SchedulerLimits limits{.max_num_tokens = 16, .max_batch_size = 5};
  Scheduler scheduler(pool, limits);
  SequenceId next = 0;
  int64_t finished = 0;
  for (int step = 0; step < 3000; ++step) {
    if (random() % 3 == 0 && scheduler.num_waiting() < 8) {
      const int64_t prompt = 1 + random() % 40;
      ASSERT_TRUE(scheduler.add(next++, prompt, prompt + 1 + random() % 20));
    }
    const Plan plan = scheduler.plan();
    ASSERT_LE(plan.num_tokens(), limits.max_num_tokens);
    ASSERT_LE(static_cast<int64_t>(plan.runs.size()), limits.max_batch_size);
    std::set<SequenceId> seen;
    for (const auto& run : plan.runs) {
      const Counts& counts = scheduler.counts(run.sequence);
      ASSERT_TRUE(seen.insert(run.sequence).second);
      ASSERT_EQ(run.first, counts.num_computed);
      ASSERT_GT(run.count, 0);
      ASSERT_LE(run.first + run.count, counts.num_tokens);
      ASSERT_GE(static_cast<int64_t>(counts.pages.size()) * 8, counts.max_tokens);
    }
    ASSERT_TRUE(!plan.runs.empty() || scheduler.idle());
    scheduler.commit(plan);
    for (const auto& run : plan.runs) {
      const Counts counts = scheduler.counts(run.sequence);
      const bool has_all = counts.num_computed == counts.num_tokens;
      ASSERT_TRUE(!has_all || counts.num_tokens + 1 == counts.max_tokens);
      if (!has_all && random() % 50 > 0) continue;
      scheduler.remove(run.sequence);
      ++finished;
    }
  }
  EXPECT_GT(finished, 100);
}

TEST(Scheduler, SplitsAPromptAtTheLargestMixedStep) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 16, .max_batch_size = 8, .max_mixed_tokens = 6});
  ASSERT_TRUE(scheduler.add(1, 14, 20));
  for (const int64_t count : {6, 6, 2}) {
    const Plan plan = scheduler.plan();
    EXPECT_EQ(plan.num_tokens(), count);
    scheduler.commit(plan);
  }
}

TEST(Scheduler, RunsOneTokenOfEachWhereThoseWhoGenerateFillAMixedStep) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 8, .max_batch_size = 8, .max_mixed_tokens = 3});
  for (SequenceId id = 1; id <= 3; ++id) {
    ASSERT_TRUE(scheduler.add(id, 1, 20));
  }
  scheduler.commit(scheduler.plan());
  ASSERT_TRUE(scheduler.add(4, 9, 20));
  const Plan plan = scheduler.plan();
  EXPECT_EQ(plan.runs, (Runs{{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 0, 1}}));
  EXPECT_EQ(plan.uniform_q(1), 1);
}

TEST(Scheduler, FormsNoMixedStepAboveItsLimitAndLeavesNobodyOutWhoGenerates) {
  std::mt19937 random(11);
  for (const int64_t max_q : {1, 3}) {
    for (const int64_t max_mixed : {1, 2, 4, 9}) {
      kv::PagePool pool(200, 8);
      const SchedulerLimits limits{
          .max_num_tokens = 18, .max_batch_size = 6, .max_mixed_tokens = max_mixed, .max_q = max_q};
      Scheduler scheduler(pool, limits);
      SequenceId next = 0;
      std::set<SequenceId> generating;
      int64_t finished = 0;
      for (int step = 0; step < 2000; ++step) {
        if (random() % 4 == 0 && scheduler.num_waiting() < 4) {
          const int64_t prompt = 1 + random() % 40;
          ASSERT_TRUE(scheduler.add(next++, prompt, prompt + 1 + random() % 20));
        }
        const Plan plan = scheduler.plan();
        ASSERT_LE(plan.num_tokens(), limits.max_num_tokens);
        ASSERT_TRUE(plan.uniform_q(max_q) > 0 || plan.num_tokens() <= max_mixed);
        std::set<SequenceId> left_out = generating;
        for (const auto& run : plan.runs)
          left_out.erase(run.sequence);
        ASSERT_TRUE(left_out.empty());
        scheduler.commit(plan);
        for (const auto& run : plan.runs) {
          const Counts& counts = scheduler.counts(run.sequence);
          if (counts.num_computed == counts.num_tokens) {
            scheduler.remove(run.sequence);
            generating.erase(run.sequence);
            ++finished;
          } else if (counts.num_computed + 1 == counts.num_tokens) {
            generating.insert(run.sequence);
          }
        }
      }
      EXPECT_GT(finished, 40) << max_mixed;
    }
  }
}

}  // namespace
}  // namespace encore::sched
