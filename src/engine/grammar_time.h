// Limits how long grammars keep the sequences of a step waiting.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/processor_time.h"
#include "engine/request_state.h"

namespace encore::engine {

// Measures and limits the time that grammars take in one step, and in all for each sequence.
// Grammars take the tokens of the step before, and say which tokens may come next. A grammar is
// asked while some time of the step is left, so a step waits at most for that time and one further
// call, which has a limit of its own (sample::TokenMatcher).
class GrammarTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts the time of a step. Call it when the tokens of the step before are about to be taken.
  void begin_step() {
    spent_ = {};
    computed_ = {};
  }
  // Returns whether one more grammar may be asked in this step.
  [[nodiscard]] bool is_left() const { return spent_ < kOfAStep; }
  // Calls `ask` with the grammar of a sequence, and adds the time to the step and the sequence.
  template <typename Ask>
  auto measure(RequestState& request, const Ask& ask) {
    struct Stop {
      Clock::duration& spent;
      Clock::duration& of_sequence;
      Clock::time_point start = Clock::now();
      ~Stop() {
        const Clock::duration took = Clock::now() - start;
        spent += took;
        of_sequence += took;
      }
    };
    const Stop stop{spent_, request.mask_time};
    return ask(*request.matcher);
  }
  // Counts, while it lives, the processor time of its thread as computing for the grammars of the
  // step.
  class Computing {
   public:
    explicit Computing(GrammarTime& time) : time_(time) {}
    ~Computing() {
      time_.computed_ += thread_processor_time() - start_;
      time_.longest_ = std::max(time_.longest_, time_.computed_);
    }
    Computing(const Computing&) = delete;
    Computing& operator=(const Computing&) = delete;

   private:
    GrammarTime& time_;
    Clock::duration start_ = thread_processor_time();
  };
  // Returns the most processor time that the grammars of one step took.
  [[nodiscard]] Clock::duration longest() const { return longest_; }
  // Returns whether the grammar of a sequence took more time in all than the limit, which is 250 ms
  // and 2 ms for each of the `num_generated` tokens. The sequence ends then.
  static bool is_over(const RequestState& request, int64_t num_generated) {
    return request.mask_time > kOnce + kEachToken * num_generated;
  }

 private:
  static constexpr auto kOfAStep = std::chrono::milliseconds(25);
  static constexpr auto kOnce = std::chrono::milliseconds(250);
  static constexpr auto kEachToken = std::chrono::milliseconds(2);

  Clock::duration spent_{};     // wall-clock time
  Clock::duration computed_{};  // processor time
  Clock::duration longest_{};
};

}  // namespace encore::engine
