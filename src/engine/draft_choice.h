// Chooses how many drafts a step has, where recordings exist for several numbers. It takes the
// number, possibly 0, that gives the most tokens per time, judged by how often drafts were right
// and how long steps took.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sched/plan.h"

namespace encore::engine {

// Compares two numbers of drafts by steps that follow each other and are otherwise alike, so it
// does not matter how times change with lengths and neighbours. Measurements grow stale as text and
// batch change, so the numbers that are not chosen are tried now and then, the less often the more
// a trial costs. Where every draft is wrong, trials take less than 1/200 of the time.
// Threads: one.
class DraftChoice {
 public:
  static constexpr double kMostSlowdown = 1.25;

  // `counts`: the numbers of drafts that steps may have besides 0, ascending. `most_slowdown`: the
  // most time that a step with drafts may take over one without, where some of its sequences take
  // no drafts; more time is all that such a sequence notices of drafts. Trials may exceed it for
  // their few steps.
  explicit DraftChoice(std::span<const int64_t> counts, double most_slowdown = kMostSlowdown);

  // Returns the number of drafts for each row of the next step, in which all sequences generate.
  [[nodiscard]] int64_t choose(const sched::DraftableStep& step) const;
  // Returns the number of drafts for each row of a mixed step. It assumes that the step's time is
  // proportional to its tokens.
  [[nodiscard]] int64_t choose_mixed(const sched::DraftableStep& step) const;

  // Returns how many steps of that many sequences may follow before another number of drafts may be
  // chosen. A burst is that long.
  [[nodiscard]] int64_t num_alike(int64_t sequences) const;

  // Counts a collected row of a step with drafts. `num_right`: how many of its first drafts were
  // right.
  void add_row(int64_t num_drafts, int64_t num_right);
  // Counts a collected row that took no drafts although its step had some.
  void add_row_without_drafts();
  // Counts a collected mixed step, also one without drafts. Older measurements of drafts weigh less
  // after it, so that drafts are tried again.
  void add_mixed_step() { forget(); }
  // Counts a collected step in which all sequences generate, and which took `ms`. Units:
  // milliseconds
  void add_step(int64_t sequences, int64_t num_drafts, double ms);

  // Returns the mean number of tokens that a row with `num_drafts` drafts is expected to give.
  [[nodiscard]] double expected_tokens(int64_t num_drafts) const;

 private:
  // The measurements of steps with about the same number of sequences: those whose numbers round up
  // to the same power of two.
  struct Group {
    // The cost of a step, by place in `counts_`. Costs are relative to each other and have no unit.
    std::vector<std::optional<double>> costs;
    int64_t since_trial = 0;  // steps since a trial began
    size_t tried_last = 0;    // the place in `counts_` tried last

    [[nodiscard]] bool is_known() const;
  };
  // A run of consecutive steps that are of one group and have the same number of drafts.
  struct Run {
    size_t group = 0;
    size_t place = 0;  // place in `counts_`
    int64_t num_steps = 0;
    int64_t num_timed = 0;
    double mean_ms = 0;  // later steps count more
    bool is_trial = false;
  };

  [[nodiscard]] size_t place_of(int64_t num_drafts) const;
  [[nodiscard]] static size_t group_of(int64_t sequences);
  // Returns the tokens per row that come in the time of a step of cost 1. REQUIRES: the cost is
  // known.
  [[nodiscard]] double speed(const Group& group, size_t place) const;
  // Returns whether a step with that number of drafts takes too long for sequences that take none.
  [[nodiscard]] bool is_too_slow(const Group& group, size_t place) const;
  // Returns the place in `counts_` of the number of drafts with the highest speed() among those
  // whose cost is known, or the first place where no cost is known. `has_without`: leaves out
  // numbers that are too slow (is_too_slow()).
  [[nodiscard]] size_t best(const Group& group, bool has_without = false) const;
  // Returns the place in `counts_` of the number of drafts that is tried next. REQUIRES: all costs
  // are known.
  [[nodiscard]] size_t next_trial(const Group& group) const;
  // Returns the steps between the beginnings of two trials, so that trials cost little. REQUIRES:
  // all costs are known.
  [[nodiscard]] int64_t trial_interval(const Group& group) const;
  // Reduces the weight of all rows counted so far.
  void forget();
  void begin_run(size_t group, size_t place);
  void time_step(double ms);

  std::vector<int64_t> counts_;  // numbers of drafts, ascending from 0
  double most_slowdown_;
  std::vector<Group> groups_;
  Run run_;
  std::optional<Run> before_;  // the run before it, where it is of the same group
  // Numbers of rows by the place of a draft in its row. `tried_` counts rows in which all drafts in
  // front of it were right, `right_` those in which it was right, too. Older rows count less.
  std::vector<double> tried_;
  std::vector<double> right_;
  double rows_ = 0;  // rows of steps with drafts
  double drafting_rows_ = 0;
};

}  // namespace encore::engine
