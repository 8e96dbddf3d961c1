#include "sched/sequence.h"

#include <gtest/gtest.h>

namespace encore::sched {
namespace {

Sequence with_prompt(int64_t length, int64_t max_length) {
  return {.id = 1, .tokens = std::vector<int32_t>(length, 7), .max_length = max_length};
}

TEST(Sequence, IsReadyForItsPromptThenForOneTokenBeyondWhatTheHostKnows) {
  Sequence sequence = with_prompt(5, 20);
  EXPECT_EQ(sequence.num_ready(), 5);
  sequence.launch({1, 0, 3});
  EXPECT_EQ(sequence.num_ready(), 2);
  sequence.launch({1, 3, 2});
  EXPECT_EQ(sequence.num_ready(), 1);  // the token that the step in flight samples
  sequence.launch({1, 5, 1});
  EXPECT_EQ(sequence.num_ready(), 0);
  EXPECT_FALSE(sequence.collect({1, 0, 3}, 50));
  EXPECT_TRUE(sequence.collect({1, 3, 2}, 51));
  EXPECT_EQ(sequence.tokens.back(), 51);
  EXPECT_EQ(sequence.collected, 5);
  EXPECT_EQ(sequence.num_ready(), 1);
}

TEST(Sequence, NeverComputesItsLastToken) {
  Sequence sequence = with_prompt(3, 4);
  sequence.launch({1, 0, 3});
  EXPECT_EQ(sequence.num_ready(), 0);
  EXPECT_TRUE(sequence.collect({1, 0, 3}, 9));
  EXPECT_EQ(sequence.known(), sequence.max_length);
}

TEST(Sequence, KeepsTheTokenThatWasInFlightWhenItWasPreempted) {
  Sequence sequence = with_prompt(3, 20);
  sequence.launch({1, 0, 3});
  sequence.preempt();
  EXPECT_EQ(sequence.num_ready(), 3);
  sequence.launch({1, 0, 3});  // launched again before the first step was collected
  EXPECT_TRUE(sequence.collect({1, 0, 3}, 40));
  EXPECT_FALSE(sequence.collect({1, 0, 3}, 40));  // the second step's token is known by then
  EXPECT_EQ(sequence.known(), 4);
  EXPECT_EQ(sequence.num_ready(), 1);
}

}  // namespace
}  // namespace encore::sched
