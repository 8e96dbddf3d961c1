// Runs random schedules with room for all sequences, and with more prompts than steps have room
// for. Checks which sequences wait, and for how long.
#include <cstdlib>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "sched/scheduler.h"
#include "sched/testing/run_step.h"

namespace encore::sched {
namespace {

using testing::run_step;

// Runs one random schedule. Its seed decides everything.
class CrowdedSchedule {
 public:
  explicit CrowdedSchedule(uint64_t seed) : random_(seed) {}

  void run(int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      for (int64_t n = between(0, 4); n > 0; --n)
        arrive();
      const std::optional<int64_t> max_prompt_tokens =
          is_target_set_ ? std::optional(between(40, 60)) : std::nullopt;
      const Plan plan = scheduler_.plan(max_prompt_tokens);
      check_first_tokens(plan);
      run_step(scheduler_, plan);
      for (const ScheduledTokens& row : plan.rows) {
        const Sequence* const sequence = Scheduler::find(row);
        if (sequence->known() == sequence->max_length) scheduler_.remove(row.sequence);
      }
    }
  }
  [[nodiscard]] int64_t num_short() const { return num_short_; }
  [[nodiscard]] int64_t num_long() const { return num_long_; }

 private:
  static constexpr int64_t kStep = 100;
  static constexpr int64_t kBatch = 30;
  // The longest short prompt. It fits the share of every step for long prompts, and what the share
  // leaves: half of the 40 prompt tokens that a step with a target has at least, and half of the 70
  // prompt tokens of a step of 100 tokens with 30 generating sequences.
  static constexpr int64_t kShort = 20;

  int64_t between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(random_() % static_cast<uint64_t>(last - first + 1));
  }
  void arrive() {
    const bool is_long = between(0, 9) == 0;
    const int64_t prompt = is_long ? between(100, 1000) : between(2, kShort);
    scheduler_.add({.id = next_id_++,
                    .tokens = std::vector<int32_t>(static_cast<size_t>(prompt), 1),
                    .max_length = prompt + between(1, 8)});
  }

  // Checks that a short prompt is computed by the third step after its admission, and that the
  // first long prompt goes on in each step. The long one may miss steps that have just got less
  // room than short prompts were admitted for.
  void check_first_tokens(const Plan& plan) {
    bool is_first_long = true;
    std::map<SequenceId, int> num_steps;
    for (const Sequence* sequence : scheduler_.running()) {
      if (sequence->launched >= sequence->given) continue;
      const auto row = std::ranges::find(plan.rows, sequence->id, &ScheduledTokens::sequence);
      const bool is_done = row != plan.rows.end() && row->end() == sequence->given;
      if (sequence->num_to_compute > kShort) {
        if (std::exchange(is_first_long, false)) {
          num_missed_ = row == plan.rows.end() ? num_missed_ + 1 : 0;
          ASSERT_LE(num_missed_, 2) << "sequence " << sequence->id;
        }
        num_long_ += is_done ? 1 : 0;
        continue;
      }
      const int steps = ++(num_steps[sequence->id] = num_steps_[sequence->id]);
      ASSERT_LE(steps, is_done ? 3 : 2) << "sequence " << sequence->id;
      num_short_ += is_done ? 1 : 0;
    }
    num_steps_ = std::move(num_steps);
  }

  std::mt19937_64 random_;
  bool is_target_set_ = between(0, 1) == 1;
  kv::PagePool pool_{4000, 16};
  Scheduler scheduler_{pool_, {.max_num_tokens = kStep, .max_batch_size = kBatch}};
  SequenceId next_id_ = 0;
  // The number of steps since a short prompt's admission, for each that is not computed yet.
  std::map<SequenceId, int> num_steps_;
  // The number of consecutive steps in which the first long prompt had no part.
  int num_missed_ = 0;
  int64_t num_short_ = 0;
  int64_t num_long_ = 0;
};

// As in random_schedules_test.cc, ENCORE_SCHEDULES=10000 runs ten times as many schedules.
TEST(Fairness, AShortPromptHasItsFirstTokenWithinThreeStepsOfGettingAPlace) {
  const char* const wanted = std::getenv("ENCORE_SCHEDULES");
  const int64_t count = wanted == nullptr ? 1000 : std::atoll(wanted);
  int64_t num_short = 0;
  int64_t num_long = 0;
  for (int64_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(seed);
    CrowdedSchedule schedule(static_cast<uint64_t>(seed));
    schedule.run(60);
    ASSERT_FALSE(HasFailure());
    num_short += schedule.num_short();
    num_long += schedule.num_long();
  }
  EXPECT_GT(num_short, 30 * count);
  EXPECT_GT(num_long, count);
}

}  // namespace
}  // namespace encore::sched
