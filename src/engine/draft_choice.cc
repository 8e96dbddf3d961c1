#include "engine/draft_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace encore::engine {
namespace {

constexpr int64_t kTrialSteps = 4;       // steps of a trial; then its time is known
constexpr int64_t kSmoothing = 8;        // steps that a run's mean time averages over
constexpr int64_t kBetweenTrials = 256;  // fewest steps from one trial to the next
constexpr int64_t kBurstTrial = 8;       // steps of a trial where steps come in bursts
// The most steps of a burst. It is small enough to notice a change of the text.
constexpr int64_t kLongestBurst = 64;
constexpr double kTrialCost = 0.004;  // largest part of all steps' time that trials may cost
constexpr double kKeep =
    0.99;  // part of its weight that an older row keeps after each step with drafts
constexpr double kLeastGain = 1.01;  // least gain for which another number of drafts is chosen
// The assumed probability that a draft is right before any was seen.
constexpr double kFirstProbability = 0.7;
constexpr size_t kGroups = 64;

}  // namespace

DraftChoice::DraftChoice(std::span<const int64_t> counts, double most_slowdown)
    : counts_{0}, most_slowdown_(most_slowdown) {
  counts_.insert(counts_.end(), counts.begin(), counts.end());
  ENCORE_CHECK(std::ranges::is_sorted(counts_) && counts_.size() > 1 && counts_[1] > 0);
  groups_.resize(kGroups);
  for (Group& group : groups_)
    group.costs.resize(counts_.size());
  tried_.resize(static_cast<size_t>(counts_.back()));
  right_.resize(tried_.size());
}

bool DraftChoice::Group::is_known() const {
  return std::ranges::all_of(costs, [](const auto& cost) { return cost.has_value(); });
}

size_t DraftChoice::place_of(int64_t num_drafts) const {
  const auto place = std::ranges::find(counts_, num_drafts);
  ENCORE_CHECK(place != counts_.end(), "a step of {} drafts, which no recording has", num_drafts);
  return static_cast<size_t>(place - counts_.begin());
}

size_t DraftChoice::group_of(int64_t sequences) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(sequences - 1)));
}

double DraftChoice::expected_tokens(int64_t num_drafts) const {
  double tokens = 1;
  double all_right = rows_ > 0 ? drafting_rows_ / rows_ : 1;
  double probability = kFirstProbability;
  for (size_t j = 0; j < static_cast<size_t>(num_drafts); ++j) {
    // The probability that draft `j` is right is estimated from the rows that tried it and one
    // made-up row, which is right with the probability of the draft in front. So the estimate is
    // defined where no row has tried the draft.
    probability = (right_[j] + probability) / (tried_[j] + 1);
    all_right *= probability;
    tokens += all_right;
  }
  return tokens;
}

double DraftChoice::speed(const Group& group, size_t place) const {
  return expected_tokens(counts_[place]) / *group.costs[place];
}

bool DraftChoice::is_too_slow(const Group& group, size_t place) const {
  const auto& plain = group.costs.front();
  const auto& cost = group.costs[place];
  return plain && cost && *cost > most_slowdown_ * *plain;
}

size_t DraftChoice::best(const Group& group, bool has_without) const {
  size_t best = 0;
  double most = 0;
  for (size_t place = 0; place < counts_.size(); ++place) {
    if (!group.costs[place] || speed(group, place) <= most) continue;
    if (has_without && is_too_slow(group, place)) continue;
    best = place;
    most = speed(group, place);
  }
  return best;
}

size_t DraftChoice::next_trial(const Group& group) const {
  const size_t next = (group.tried_last + 1) % counts_.size();
  return next == best(group) ? (next + 1) % counts_.size() : next;
}

int64_t DraftChoice::trial_interval(const Group& group) const {
  const double loss = 1 - speed(group, next_trial(group)) / speed(group, best(group));
  const double steps = static_cast<double>(kTrialSteps) * loss / kTrialCost;
  return std::max(kBetweenTrials, static_cast<int64_t>(std::ceil(steps)));
}

int64_t DraftChoice::choose(const sched::DraftableStep& step) const {
  const size_t index = group_of(step.sequences);
  const Group& group = groups_[index];
  const bool has_without = step.without > 0;
  const bool goes_on = run_.num_steps > 0 && run_.group == index;
  if (goes_on && run_.num_steps < kTrialSteps) return counts_[run_.place];
  if (!goes_on) return counts_[best(group, has_without)];
  if (!group.is_known()) {
    // A number of drafts whose cost is unknown is tried directly behind the present run of steps,
    // since its cost is measured relative to that of this run. Where the cost of the present run is
    // unknown, the run goes on until it is known.
    if (!group.costs[run_.place]) return counts_[run_.place];
    const auto unknown = std::ranges::find_if(group.costs, [](const auto& cost) { return !cost; });
    return counts_[static_cast<size_t>(unknown - group.costs.begin())];
  }
  if (group.since_trial >= trial_interval(group)) return counts_[next_trial(group)];
  const size_t best = this->best(group, has_without);
  const bool stays = speed(group, best) < kLeastGain * speed(group, run_.place) &&
                     !(has_without && is_too_slow(group, run_.place));
  return counts_[stays ? run_.place : best];
}

int64_t DraftChoice::num_alike(int64_t sequences) const {
  const Group& group = groups_[group_of(sequences)];
  const bool is_compared = run_.num_steps > 0 && run_.group == group_of(sequences) &&
                           run_.num_steps >= kTrialSteps && group.is_known();
  if (!is_compared) return kBurstTrial;
  return std::clamp(trial_interval(group) - group.since_trial, kBurstTrial, kLongestBurst);
}

int64_t DraftChoice::choose_mixed(const sched::DraftableStep& step) const {
  const auto plain = static_cast<double>(step.prompt_tokens + step.sequences);
  int64_t best = 0;
  // The largest value so far of: tokens that a row is expected to get, divided by the step's time
  // relative to a step without drafts. Without drafts it is 1.
  double most = 1;
  for (const int64_t count : counts_) {
    const auto drafts = static_cast<double>((step.sequences - step.without) * count);
    const double slowdown = (plain + drafts) / plain;
    const double tokens = expected_tokens(count) / slowdown;
    if (tokens <= most || (step.without > 0 && slowdown > most_slowdown_)) continue;
    best = count;
    most = tokens;
  }
  return best;
}

void DraftChoice::add_row(int64_t num_drafts, int64_t num_right) {
  ++rows_;
  ++drafting_rows_;
  for (int64_t j = 0; j < std::min(num_drafts, num_right + 1); ++j) {
    ++tried_[static_cast<size_t>(j)];
    if (j < num_right) ++right_[static_cast<size_t>(j)];
  }
}

void DraftChoice::add_row_without_drafts() {
  ++rows_;
}

void DraftChoice::add_step(int64_t sequences, int64_t num_drafts, double ms) {
  const size_t place = place_of(num_drafts);
  if (num_drafts > 0) forget();
  const bool goes_on =
      run_.num_steps > 0 && run_.group == group_of(sequences) && run_.place == place;
  if (!goes_on) begin_run(group_of(sequences), place);
  ++run_.num_steps;
  ++groups_[run_.group].since_trial;
  // The first step of a run is not timed. It is launched only when the step in front has ended, and
  // takes longer for that reason.
  if (run_.num_steps > 1) time_step(ms);
}

void DraftChoice::forget() {
  rows_ *= kKeep;
  drafting_rows_ *= kKeep;
  for (auto* const counts : {&tried_, &right_}) {
    for (double& count : *counts)
      count *= kKeep;
  }
}

void DraftChoice::begin_run(size_t group, size_t place) {
  before_.reset();
  if (run_.group == group && run_.num_timed > 0) before_ = run_;
  run_ = {.group = group, .place = place};
  Group& own = groups_[group];
  if (!before_) return;
  run_.is_trial = own.costs[before_->place] && (!own.costs[place] || place != best(own));
  own.since_trial = 0;
  if (run_.is_trial) own.tried_last = place;
}

void DraftChoice::time_step(double ms) {
  ++run_.num_timed;
  run_.mean_ms += (ms - run_.mean_ms) / static_cast<double>(std::min(run_.num_timed, kSmoothing));
  Group& group = groups_[run_.group];
  std::optional<double>& cost = group.costs[run_.place];
  if (run_.is_trial && run_.num_timed < kTrialSteps) {
    cost = *group.costs[before_->place] * run_.mean_ms / before_->mean_ms;
  } else if (std::ranges::none_of(group.costs,
                                  [](const auto& known) { return known.has_value(); })) {
    cost = 1;
  }
}

}  // namespace encore::engine
