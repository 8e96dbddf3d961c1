// How many tokens a step guesses, where several numbers of drafts are recorded: the number by which most tokens
// come in a time, none included, from how often drafts were right and how long steps took.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sched/plan.h"

namespace encore::engine {

// Two numbers of drafts are compared by steps that follow each other and are alike else, so it does not matter
// how times change with lengths and neighbours. What is known grows old with text and batch: numbers that are
// not chosen are tried now and then, the more seldom the more a trial costs. Where every draft is wrong, trials
// take less than a part in 200 of the time.
// Threads: one.
class DraftChoice {
 public:
  static constexpr double kMostSlowdown = 1.25;

  // `counts`: numbers of drafts that steps may have, ascending, without 0, which they may have, too.
  // `most_slowdown`: of a step with sequences that take no drafts, over one without drafts, which is all
  // that such a sequence notices. Trials are no longer than their few steps.
  explicit DraftChoice(std::span<const int64_t> counts, double most_slowdown = kMostSlowdown);

  // The drafts of a row of the next step, in which all sequences generate.
  [[nodiscard]] int64_t choose(const sched::DraftableStep& step) const;
  // The drafts of a row of a mixed step, which is taken to last the longer, the more tokens it has.
  [[nodiscard]] int64_t choose_mixed(const sched::DraftableStep& step) const;

  // Steps of so many sequences that may follow before another number of drafts may be chosen: how long a burst is.
  [[nodiscard]] int64_t num_alike(int64_t sequences) const;

  // A row of a step with drafts was collected, of which the first `num_right` were right.
  void add_row(int64_t num_drafts, int64_t num_right);
  // A row was collected that took no drafts, although its step had some.
  void add_row_without_drafts();
  // A mixed step was collected. What is known of drafts grows old by it, also where it had none, so that
  // they are tried again.
  void add_mixed_step() { forget(); }
  // A step in which all sequences generate was collected, and took so long.
  void add_step(int64_t sequences, int64_t num_drafts, double ms);

  // The mean tokens of a row of a step with so many drafts, as far as is known.
  [[nodiscard]] double expected_tokens(int64_t num_drafts) const;

 private:
  // Steps of about as many sequences: up to a power of two.
  struct Group {
    // The costs of a step lie here by place in counts_. They mean something beside each other only.
    std::vector<std::optional<double>> costs;
    int64_t since_trial = 0;  // steps since one began
    size_t tried_last = 0;    // a place in counts_

    [[nodiscard]] bool is_known() const;
  };
  // A run of steps, one behind the other, that are of one group and have the same number of drafts.
  struct Run {
    size_t group = 0;
    size_t place = 0;  // in counts_
    int64_t num_steps = 0;
    int64_t num_timed = 0;
    double mean_ms = 0;  // later steps count more
    bool is_trial = false;
  };

  [[nodiscard]] size_t place_of(int64_t num_drafts) const;
  [[nodiscard]] static size_t group_of(int64_t sequences);
  // Tokens in the time of a step that costs 1. REQUIRES: the cost is known.
  [[nodiscard]] double speed(const Group& group, size_t place) const;
  // Is a step of that many drafts too long for sequences that take none?
  [[nodiscard]] bool is_too_slow(const Group& group, size_t place) const;
  // The fastest of those whose cost is known; the first where none is. `has_without`: only of those that
  // are not too slow.
  [[nodiscard]] size_t best(const Group& group, bool has_without = false) const;
  // The place that is due to be tried. REQUIRES: all costs are known.
  [[nodiscard]] size_t next_trial(const Group& group) const;
  // Steps between two trials, so that they cost little. REQUIRES: all costs are known.
  [[nodiscard]] int64_t trial_interval(const Group& group) const;
  // Older rows count less from now on.
  void forget();
  void begin_run(size_t group, size_t place);
  void time_step(double ms);

  std::vector<int64_t> counts_;  // 0 first
  double most_slowdown_;
  std::vector<Group> groups_;
  Run run_;
  std::optional<Run> before_;  // the run in front of it, of its group
  // Rows, by number of a draft: those that tried it, as all in front of it were right, and those in which it
  // was right. Older rows count less.
  std::vector<double> tried_;
  std::vector<double> right_;
  double rows_ = 0;  // of steps with drafts
  double drafting_rows_ = 0;
};

}  // namespace encore::engine
