// Limits how long grammars keep the sequences of a step waiting.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/processor_time.h"
#include "engine/request_state.h"

namespace encore::engine {

// The time that the grammars of one step take, on the clock of each sequence as well: they take the
// tokens of the step before, and say which may come next. A grammar is
// asked while some time of the step is left, so a step waits for that and one call more, which has a
// limit of its own (sample::TokenMatcher).
class GrammarTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Call it when the tokens of a step are about to be taken.
  void begin_step() {
    spent_ = {};
    computed_ = {};
  }
  // May one more grammar be asked in this step?
  [[nodiscard]] bool is_left() const { return spent_ < kOfAStep; }
  // Asks the grammar of a sequence.
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
  // Counts all that its thread computes while it lives for the grammars of the step.
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
  // The most that was computed for the grammars of one step.
  [[nodiscard]] Clock::duration longest() const { return longest_; }
  // Did the grammar of a sequence take so long for so many tokens that the sequence ends?
  static bool is_over(const RequestState& request, int64_t num_generated) {
    return request.mask_time > kOnce + kEachToken * num_generated;
  }

 private:
  static constexpr auto kOfAStep = std::chrono::milliseconds(25);
  static constexpr auto kOnce = std::chrono::milliseconds(250);
  static constexpr auto kEachToken = std::chrono::milliseconds(2);

  Clock::duration spent_{};     // by the clock
  Clock::duration computed_{};  // by the processor
  Clock::duration longest_{};
};

}  // namespace encore::engine
