#include "sched/scheduler.h"

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "sched/testing/run_step.h"

namespace encore::sched {
namespace {

using Rows = std::vector<ScheduledTokens>;
using testing::run_step;

Sequence sequence_of(SequenceId id, int64_t prompt, int64_t max_length) {
  return {.id = id, .tokens = std::vector<int32_t>(prompt, 7), .max_length = max_length};
}

TEST(Scheduler, RunsAPromptInChunksBesideThoseThatGenerate) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 4});
  scheduler.add(sequence_of(1, 3, 20));
  Plan plan = scheduler.plan();
  EXPECT_EQ(plan.rows, (Rows{{1, 0, 3}}));
  run_step(scheduler, plan);
  scheduler.add(sequence_of(2, 25, 30));
  for (int chunk = 0; chunk < 2; ++chunk) {
    plan = scheduler.plan();
    EXPECT_EQ(plan.rows, (Rows{{1, 3 + chunk, 1}, {2, 9 * chunk, 9}}));
    EXPECT_EQ(plan.uniform_q(1), std::nullopt);
    run_step(scheduler, plan);
  }
  plan = scheduler.plan();
  EXPECT_EQ(plan.rows, (Rows{{1, 5, 1}, {2, 18, 7}}));
}

TEST(Scheduler, GivesThoseWhoLiveSmallIndexesOfTheirOwn) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 4});
  EXPECT_EQ(scheduler.add(sequence_of(1, 3, 20)).index, 0);
  EXPECT_EQ(scheduler.add(sequence_of(2, 3, 20)).index, 1);
  EXPECT_EQ(scheduler.add(sequence_of(3, 3, 20)).index, 2);
  scheduler.remove(2);
  EXPECT_EQ(scheduler.add(sequence_of(4, 3, 20)).index, 1);
  EXPECT_EQ(scheduler.add(sequence_of(5, 3, 20)).index, 3);
  EXPECT_EQ(scheduler.find(3)->index, 2);
  std::set<SequenceId> ids;
  for (const Sequence* sequence : scheduler.sequences())
    ids.insert(sequence->id);
  EXPECT_EQ(ids, (std::set<SequenceId>{1, 3, 4, 5}));
}

TEST(Scheduler, KnowsWhatCanNeverRunAndQueuesWhatCannotYet) {
  kv::PagePool pool(4, 16);
  Scheduler scheduler(pool, {});
  EXPECT_FALSE(scheduler.can_fit(66));
  EXPECT_TRUE(scheduler.can_fit(65));  // 4 pages hold 64 tokens; the 65th is never computed
  scheduler.add(sequence_of(2, 40, 48));
  scheduler.add(sequence_of(3, 10, 32));
  EXPECT_EQ(scheduler.plan().rows.size(), 1U);
  EXPECT_EQ(scheduler.num_waiting(), 1);
  scheduler.remove(2);
  EXPECT_EQ(scheduler.plan().rows, (Rows{{3, 0, 10}}));
}

TEST(Scheduler, LetsAShortPromptPassALongOneThatCameEarlier) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 8});
  scheduler.add(sequence_of(1, 25, 40));
  scheduler.add(sequence_of(2, 4, 40));
  Plan plan = scheduler.plan();
  EXPECT_EQ(plan.rows, (Rows{{2, 0, 4}, {1, 0, 6}}));
  run_step(scheduler, plan);
  plan = scheduler.plan();
  EXPECT_EQ(plan.rows, (Rows{{2, 4, 1}, {1, 6, 9}}));
}

TEST(Scheduler, LetsALongPromptWaitForNoneThatCameLaterWhereItMayHaveTheWholeStep) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 8, .prompt_share = 1});
  scheduler.add(sequence_of(1, 25, 40));
  scheduler.add(sequence_of(2, 4, 40));
  Plan plan = scheduler.plan();
  EXPECT_EQ(plan.rows, (Rows{{1, 0, 10}}));
  run_step(scheduler, plan);
  run_step(scheduler, scheduler.plan());
  plan = scheduler.plan();
  EXPECT_EQ(plan.rows, (Rows{{2, 0, 4}, {1, 20, 5}}));
}

TEST(Scheduler, GivesALongPromptItsShareWhateverComes) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 8});
  scheduler.add(sequence_of(1, 30, 40));
  for (SequenceId id = 2; id < 12; id += 2) {
    scheduler.add(sequence_of(id, 5, 6));
    scheduler.add(sequence_of(id + 1, 5, 6));
    const Plan plan = scheduler.plan();
    EXPECT_EQ(plan.rows, (Rows{{id / 2 + 1, 0, 5}, {1, (id - 2) / 2 * 5, 5}}));
    run_step(scheduler, plan);
    scheduler.remove(id / 2 + 1);
  }
}

// If the two long prompts shared the steps, both would end when the second one ends now.
TEST(Scheduler, LetsLongPromptsComeOneAfterAnotherAndShortOnesPassThemAll) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 8});
  const auto next_rows = [&] {
    const Plan plan = scheduler.plan();
    run_step(scheduler, plan);
    return plan.rows;
  };
  scheduler.add(sequence_of(1, 24, 40));
  scheduler.add(sequence_of(2, 12, 40));
  EXPECT_EQ(next_rows(), (Rows{{1, 0, 10}}));
  scheduler.add(sequence_of(3, 5, 6));
  EXPECT_EQ(next_rows(), (Rows{{3, 0, 5}, {1, 10, 5}}));
  scheduler.remove(3);
  EXPECT_EQ(next_rows(), (Rows{{1, 15, 9}, {2, 0, 1}}));
  EXPECT_EQ(next_rows(), (Rows{{1, 24, 1}, {2, 1, 9}}));
}

// Prompts that would wait beyond the next step leave their rows of the batch to others.
TEST(Scheduler, AdmitsAsManyShortPromptsAsAStepGetsTo) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 8});
  for (const SequenceId id : {1, 2, 3, 4})
    scheduler.add(sequence_of(id, 4, 40));
  Plan plan = scheduler.plan();
  EXPECT_EQ(plan.rows, (Rows{{1, 0, 4}, {2, 0, 4}, {3, 0, 2}}));
  EXPECT_EQ(scheduler.num_waiting(), 1);
  run_step(scheduler, plan);
  EXPECT_EQ(scheduler.plan().rows, (Rows{{1, 4, 1}, {2, 4, 1}, {3, 2, 2}, {4, 0, 4}}));
}

TEST(Scheduler, PreemptsByPriorityOnlyWhereItMay) {
  for (const bool may : {false, true}) {
    kv::PagePool pool(100, 16);
    Scheduler scheduler(pool,
                        {.max_num_tokens = 16, .max_batch_size = 2, .preempts_by_priority = may});
    for (const SequenceId id : {1, 2}) {
      Sequence sequence = sequence_of(id, 3, 40);
      sequence.priority = 1;
      scheduler.add(std::move(sequence));
    }
    run_step(scheduler, scheduler.plan());
    Sequence equal = sequence_of(3, 3, 40);
    equal.priority = 1;
    scheduler.add(std::move(equal));
    scheduler.add(sequence_of(4, 3, 40));
    EXPECT_EQ(scheduler.plan().rows,
              may ? (Rows{{1, 3, 1}, {4, 0, 3}}) : (Rows{{1, 3, 1}, {2, 3, 1}}));
    EXPECT_EQ(scheduler.num_preemptions(), may ? 1 : 0);
  }
}

TEST(Scheduler, PreemptsByPriorityForPages) {
  kv::PagePool pool(5, 16);
  Scheduler scheduler(pool,
                      {.max_num_tokens = 64, .max_batch_size = 4, .preempts_by_priority = true});
  for (const SequenceId id : {1, 2}) {
    Sequence sequence = sequence_of(id, 20, 40);
    sequence.priority = static_cast<int32_t>(id);
    scheduler.add(std::move(sequence));
  }
  run_step(scheduler, scheduler.plan());
  scheduler.add(sequence_of(3, 20, 40));
  EXPECT_EQ(scheduler.plan().rows, (Rows{{1, 20, 1}, {3, 0, 20}}));
}

TEST(Scheduler, NamesThePagesThatHoldWhatIsComputed) {
  kv::PagePool pool(8, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 32, .max_batch_size = 4});
  scheduler.add(sequence_of(1, 16, 64));
  scheduler.add(sequence_of(2, 40, 48));  // runs in chunks
  EXPECT_TRUE(scheduler.pages_in_use()[0].empty());
  run_step(scheduler, scheduler.plan());
  // Each of the two sequences has one full page of 16 tokens.
  const auto page = [&](SequenceId id, size_t i) { return scheduler.find(id)->pages[i]; };
  EXPECT_EQ(scheduler.pages_in_use()[0], (std::vector<kv::Page>{page(1, 0), page(2, 0)}));
  run_step(scheduler, scheduler.plan());
  EXPECT_EQ(scheduler.pages_in_use()[0],
            (std::vector<kv::Page>{page(1, 0), page(1, 1), page(2, 0), page(2, 1), page(2, 2)}));
  scheduler.remove(2);
  EXPECT_EQ(scheduler.pages_in_use()[0], (std::vector<kv::Page>{page(1, 0), page(1, 1)}));
}

TEST(Scheduler, TheRowOfASequenceThatEndedIsNobodysThoughAnotherHasItsMemory) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 4});
  scheduler.add(sequence_of(1, 3, 20));
  const Plan plan = scheduler.plan();
  scheduler.commit(plan);
  EXPECT_EQ(Scheduler::find(plan.rows[0]), scheduler.find(1));
  scheduler.remove(1);
  EXPECT_EQ(Scheduler::find(plan.rows[0]), nullptr);
  scheduler.add(sequence_of(2, 3, 20));
  EXPECT_EQ(Scheduler::find(plan.rows[0]), nullptr);
  EXPECT_EQ(Scheduler::find(scheduler.plan().rows[0]), scheduler.find(2));
}

TEST(Scheduler, LeavesOutWhoEndedSinceTheStepWasPlanned) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 10, .max_batch_size = 4});
  scheduler.add(sequence_of(1, 3, 20));
  scheduler.add(sequence_of(2, 3, 20));
  const Plan plan = scheduler.plan();
  ASSERT_EQ(plan.rows.size(), 2U);
  scheduler.remove(1);
  scheduler.commit(plan);
  EXPECT_EQ(scheduler.find(2)->row, 1);
  EXPECT_EQ(scheduler.find(2)->launched, 3);
}

TEST(Scheduler, GrantsPagesAsSequencesGrowAndSaysSo) {
  kv::PagePool pool(6, 4);
  Scheduler scheduler(pool, {.max_num_tokens = 32, .max_batch_size = 4});
  scheduler.add(sequence_of(1, 3, 20));
  Plan plan = scheduler.plan();
  EXPECT_EQ(scheduler.find(1)->pages.size(), 1U);
  run_step(scheduler, plan);
  int num_grants = 0;
  for (int64_t first = 3; first < 18; ++first) {
    const size_t num_before = scheduler.find(1)->pages.size();
    plan = scheduler.plan();
    EXPECT_EQ(plan.rows, (Rows{{1, first, 1}}));
    // The pages of the token behind the last computed one are there, too.
    EXPECT_GE(std::ssize(scheduler.find(1)->pages) * 4, std::min<int64_t>(first + 2, 19));
    EXPECT_EQ(plan.has_new_pages, scheduler.find(1)->pages.size() > num_before) << first;
    num_grants += plan.has_new_pages ? 1 : 0;
    run_step(scheduler, plan);
  }
  EXPECT_EQ(scheduler.find(1)->pages.size(), 5U);  // 5 pages of 4 tokens for 19 of the 20 tokens
  EXPECT_EQ(num_grants, 2);  // three pages at once while more are free, then the last one
}

TEST(Scheduler, TakesThePagesOfTheYoungestWhenNoneIsLeftAndRunsItAgainLater) {
  kv::PagePool pool(4, 4);
  Scheduler scheduler(pool, {.max_num_tokens = 32, .max_batch_size = 4});
  scheduler.add(sequence_of(1, 3, 16));
  scheduler.add(sequence_of(2, 3, 12));
  EXPECT_FALSE(scheduler.find(2)->admitted.has_value());
  run_step(scheduler, scheduler.plan());
  const auto admitted = scheduler.find(2)->admitted;
  EXPECT_TRUE(admitted.has_value());
  std::vector<size_t> rows;
  while (scheduler.find(1) != nullptr && scheduler.find(1)->known() < 16) {
    const Plan plan = scheduler.plan();
    ASSERT_FALSE(plan.rows.empty());
    EXPECT_EQ(plan.rows[0].sequence, 1);
    rows.push_back(plan.rows.size());
    run_step(scheduler, plan);
    if (scheduler.find(2) != nullptr && scheduler.find(2)->known() == 12) scheduler.remove(2);
  }
  EXPECT_GT(scheduler.num_preemptions(), 0);
  EXPECT_EQ(rows.back(), 1U);  // it has the pool for itself
  scheduler.remove(1);
  const int64_t known = scheduler.find(2)->known();
  EXPECT_GT(known, 3);  // tokens that it had generated are kept
  EXPECT_EQ(scheduler.plan().rows, (Rows{{2, 0, known}}));
  EXPECT_EQ(scheduler.find(2)->admitted, admitted) << "when it first had its turn";
}

// Runs random requests and aborts, with a host that collects up to one step late. Every sequence
// ends, no page is lost or given twice, and the limits hold.
TEST(Scheduler, KeepsItsPromisesInRandomTraces) {
  std::mt19937 random(7);
  for (const int64_t num_pages : {9, 12, 40}) {
    kv::PagePool pool(num_pages, 8);
    const SchedulerLimits limits{.max_num_tokens = 16, .max_batch_size = 5};
    Scheduler scheduler(pool, limits);
    std::deque<Plan> in_flight;
    SequenceId next = 0;
    int64_t finished = 0;
    const auto collect = [&] {
      const Plan plan = std::move(in_flight.front());
      in_flight.pop_front();
      for (const ScheduledTokens& row : plan.rows) {
        Sequence* const sequence = scheduler.find(row.sequence);
        if (sequence == nullptr || !sequence->collect(row, 7)) continue;
        const bool is_stop = random() % 60 == 0;
        if (!is_stop && sequence->known() < sequence->max_length) continue;
        scheduler.remove(row.sequence);
        ++finished;
      }
    };
    for (int step = 0; step < 3000; ++step) {
      if (random() % 3 == 0 && scheduler.num_waiting() < 8) {
        const int64_t prompt = 1 + random() % 40;
        const int64_t max_length = prompt + 1 + random() % 20;
        if (scheduler.can_fit(max_length)) scheduler.add(sequence_of(next++, prompt, max_length));
      }
      if (next > 0 && random() % 100 == 0)
        scheduler.remove(static_cast<SequenceId>(random() % next));
      const Plan plan = scheduler.plan();
      ASSERT_LE(plan.num_tokens(), limits.max_num_tokens);
      ASSERT_LE(static_cast<int64_t>(plan.rows.size()), limits.max_batch_size);
      std::set<SequenceId> seen;
      std::set<kv::Page> pages;
      int64_t num_held = 0;
      for (const Sequence* sequence : scheduler.running()) {
        pages.insert(sequence->pages.begin(), sequence->pages.end());
        num_held += std::ssize(sequence->pages);
        ASSERT_LE(sequence->collected, sequence->launched);
        ASSERT_LE(sequence->launched, sequence->known() + 1);
      }
      ASSERT_EQ(std::ssize(pages), num_held);
      ASSERT_EQ(num_held + pool.num_free(), num_pages);
      for (const ScheduledTokens& row : plan.rows) {
        const Sequence& sequence = *scheduler.find(row.sequence);
        ASSERT_TRUE(seen.insert(row.sequence).second);
        ASSERT_EQ(row.first, sequence.launched);
        ASSERT_GT(row.count, 0);
        ASSERT_LE(row.count, sequence.num_ready());
        ASSERT_GE(std::ssize(sequence.pages) * 8, std::min(row.end() + 1, sequence.max_length - 1));
      }
      ASSERT_TRUE(!plan.rows.empty() || !in_flight.empty() || scheduler.idle());
      scheduler.commit(plan);
      if (!plan.rows.empty()) in_flight.push_back(plan);
      while (in_flight.size() > (plan.rows.empty() ? 0 : random() % 2))
        collect();
    }
    EXPECT_GT(finished, 100);
    EXPECT_EQ(scheduler.num_preemptions() > 0, num_pages < 40);
  }
}

TEST(Scheduler, SplitsAPromptAtTheLargestMixedStep) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(pool, {.max_num_tokens = 16, .max_batch_size = 8, .max_mixed_tokens = 6});
  scheduler.add(sequence_of(1, 14, 20));
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
    scheduler.add(sequence_of(id, 1, 20));
  }
  run_step(scheduler, scheduler.plan());
  scheduler.add(sequence_of(4, 9, 20));
  const Plan plan = scheduler.plan();
  EXPECT_EQ(plan.rows, (Rows{{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 0, 1}}));
  EXPECT_EQ(plan.uniform_q(1), 1);
}

TEST(Scheduler, FormsUniformStepsOfSeveralTokensAboveTheLimitOfMixedOnes) {
  kv::PagePool pool(100, 16);
  Scheduler scheduler(
      pool, {.max_num_tokens = 16, .max_batch_size = 4, .max_mixed_tokens = 4, .max_q = 4});
  scheduler.add(sequence_of(1, 4, 20));
  scheduler.add(sequence_of(2, 4, 20));
  EXPECT_EQ(scheduler.plan().rows, (Rows{{1, 0, 4}, {2, 0, 4}}));
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
          scheduler.add(sequence_of(next++, prompt, prompt + 1 + random() % 20));
        }
        const Plan plan = scheduler.plan();
        ASSERT_LE(plan.num_tokens(), limits.max_num_tokens);
        ASSERT_TRUE(plan.uniform_q(max_q) || plan.num_tokens() <= max_mixed);
        std::set<SequenceId> left_out = generating;
        for (const ScheduledTokens& row : plan.rows)
          left_out.erase(row.sequence);
        ASSERT_TRUE(left_out.empty());
        run_step(scheduler, plan);
        for (const ScheduledTokens& row : plan.rows) {
          const Sequence& sequence = *scheduler.find(row.sequence);
          if (sequence.known() == sequence.max_length) {
            scheduler.remove(row.sequence);
            generating.erase(row.sequence);
            ++finished;
          } else if (sequence.num_ready() == 1) {
            generating.insert(row.sequence);
          }
        }
      }
      EXPECT_GT(finished, 40) << max_mixed;
    }
  }
}

}  // namespace
}  // namespace encore::sched
